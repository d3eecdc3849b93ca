/* clang-format off */
/* matrix_ops.h: rows of ops.h: decompositions of small matrices, by LAPACK, on CPUs only. */

/* Of symmetric matrices, whose lower triangle is read: eigenvalues, ascending, and eigenvectors in
   columns. */
OP(eigh,           "...a!b!->...b!:f32,...a!b!:f32", "",   no_grad,            "", "", "a b b")
/* Left singular vectors in columns, singular values, descending, and right ones in rows. u and v
   are k, the smaller of a and b, or a and b: then there are further vectors. */
OP(svd,            "...a!b!->...a!u!:f32,...k!:f32,...v!b!:f32", "", no_grad,  "", "", "a b k")
