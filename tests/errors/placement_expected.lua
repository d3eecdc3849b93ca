local style = Rowwise{output_layouts = 1}
