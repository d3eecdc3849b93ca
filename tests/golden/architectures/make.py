#!/usr/bin/env python3
"""Tiny models of ten architectures as archives of torch.export, and a batch for each, in archives.tar.xz.

    make.py [NAME...]   by default all of them: then archives.tar.xz is written; else files of each NAME

Needs PyTorch 2.15, transformers 5.24, diffusers 0.42 and torch_geometric 2.8. Weights have few values, so that they
take few bytes. NAME.batch.safetensors has the inputs and a target; NAME.loss says which loss."""
import io
import lzma
import os
import sys
import tarfile
import warnings
import zlib

import torch
from safetensors.torch import save_file
from torch import nn

warnings.filterwarnings("ignore")
B, V, D = 4, 48, 16
TEXT = dict(vocab_size=V, hidden_size=D, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=32, max_position_embeddings=64)
PIXELS = dict(hidden_size=D, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32, image_size=16, patch_size=4)


class Wrap(nn.Module):
    def __init__(self, model, call):
        super().__init__()
        self.model = model
        self.call = call

    def forward(self, *args):
        return self.call(self.model, *args)


def ids(tokens=12):
    return torch.randint(3, V, (B, tokens))


def image(size=16, channels=3):
    return torch.randn(B, channels, size, size)


# Each gives the module, its inputs, its first output and its loss.
def flux():
    from diffusers import FluxTransformer2DModel
    model = FluxTransformer2DModel(patch_size=1, in_channels=8, num_layers=2, num_single_layers=2, attention_head_dim=8,
                                   num_attention_heads=2, joint_attention_dim=24, pooled_projection_dim=20, guidance_embeds=True,
                                   axes_dims_rope=(2, 2, 4))
    places = torch.stack([torch.zeros(16), torch.arange(16) // 4, torch.arange(16) % 4], -1)
    inputs = (torch.randn(B, 16, 8), torch.randn(B, 8, 24), torch.randn(B, 20), torch.rand(B), torch.rand(B), places, torch.zeros(8, 3))
    return model, inputs, lambda m, x, c, p, t, g, i, j: m(
        hidden_states=x, encoder_hidden_states=c, pooled_projections=p, timestep=t, guidance=g, img_ids=i, txt_ids=j).sample, "mse"


def sd3():
    from diffusers import SD3Transformer2DModel
    model = SD3Transformer2DModel(sample_size=8, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=8,
                                  num_attention_heads=2, joint_attention_dim=24, caption_projection_dim=16,
                                  pooled_projection_dim=20, out_channels=4, pos_embed_max_size=8, qk_norm="rms_norm")
    inputs = (image(8, 4), torch.randn(B, 8, 24), torch.randn(B, 20), torch.rand(B) * 1000)
    return model, inputs, lambda m, x, c, p, t: m(
        hidden_states=x, encoder_hidden_states=c, pooled_projections=p, timestep=t).sample, "mse"


def unet2d_condition():
    from diffusers import UNet2DConditionModel
    model = UNet2DConditionModel(sample_size=8, in_channels=4, out_channels=4, block_out_channels=(8, 16), layers_per_block=1,
                                 down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
                                 up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"), cross_attention_dim=24,
                                 attention_head_dim=4, norm_num_groups=4)
    inputs = (image(8, 4), torch.rand(B) * 1000, torch.randn(B, 8, 24))
    return model, inputs, lambda m, x, t, c: m(x, t, encoder_hidden_states=c).sample, "mse"


def whisper():
    from transformers import WhisperConfig, WhisperForConditionalGeneration
    model = WhisperForConditionalGeneration(WhisperConfig(
        vocab_size=V, num_mel_bins=8, d_model=D, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=32, decoder_ffn_dim=32, max_source_positions=20, max_target_positions=16,
        pad_token_id=0, decoder_start_token_id=1, bos_token_id=1, eos_token_id=2))
    return model, (torch.randn(B, 8, 40), ids()), lambda m, x, y: m(
        input_features=x, decoder_input_ids=y, use_cache=False).logits, "cross_entropy"


def swin():
    from transformers import SwinConfig, SwinForImageClassification
    model = SwinForImageClassification(SwinConfig(image_size=16, patch_size=2, embed_dim=8, depths=[2, 2], num_heads=[2, 4],
                                                  window_size=4, num_labels=8))
    return model, (image(),), lambda m, x: m(pixel_values=x).logits, "cross_entropy"


def convnext():
    from transformers import ConvNextConfig, ConvNextForImageClassification
    model = ConvNextForImageClassification(ConvNextConfig(hidden_sizes=[4, 8, 12, 16], depths=[1, 1, 2, 1], image_size=32,
                                                          num_labels=8, layer_scale_init_value=1.0))
    return model, (image(32),), lambda m, x: m(pixel_values=x).logits, "cross_entropy"


def detr():
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig
    backbone = ResNetConfig(embedding_size=4, hidden_sizes=[4, 8, 12, 16], depths=[1, 1, 1, 1], layer_type="basic",
                            out_features=["stage4"])
    model = DetrForObjectDetection(DetrConfig(
        backbone_config=backbone, use_timm_backbone=False, use_pretrained_backbone=False, d_model=16, encoder_layers=1,
        decoder_layers=2, encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32,
        num_queries=6, num_labels=8))
    return model, (image(64), torch.ones(B, 64, 64, dtype=torch.long)), lambda m, x, k: m(
        pixel_values=x, pixel_mask=k).pred_boxes, "mse"


def llava():
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration
    model = LlavaForConditionalGeneration(LlavaConfig(
        vision_config=CLIPVisionConfig(**PIXELS), text_config=LlamaConfig(**TEXT), image_token_index=V - 1, vision_feature_layer=-1))
    tokens = torch.randint(3, V - 1, (B, 24))
    tokens[:, 1:17] = V - 1
    return model, (tokens, image()), lambda m, x, y: m(
        input_ids=x, pixel_values=y, attention_mask=torch.ones_like(x), use_cache=False).logits, "cross_entropy"


def mamba2():
    from transformers import Mamba2Config, Mamba2ForCausalLM
    model = Mamba2ForCausalLM(Mamba2Config(vocab_size=V, hidden_size=D, num_hidden_layers=2, num_heads=4, head_dim=8,
                                           state_size=8, n_groups=2, chunk_size=4, expand=2))
    return model, (ids(),), lambda m, x: m(input_ids=x, use_cache=False).logits, "cross_entropy"


def graph():
    from torch_geometric.nn import GCNConv, SAGEConv

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = GCNConv(8, 32, add_self_loops=False), SAGEConv(32, 32)
            self.out = nn.Linear(32, 6)

        def forward(self, x, edges):
            return self.out(self.second(self.first(x, edges).relu(), edges).relu())

    return Net(), (torch.randn(12, 8), torch.randint(0, 12, (2, 32))), lambda m, x, e: m(x, e), "cross_entropy"


ALL = [flux, sd3, unet2d_condition, whisper, swin, convnext, detr, llava, mamba2, graph]


def few_values(tensor):
    """The tensor in 7 steps of its greatest element."""
    most = tensor.abs().max()
    return tensor if not most else (tensor / most * 3).round() / 3 * most


def make(function, folder):
    name = function.__name__
    torch.manual_seed(zlib.crc32(name.encode()))
    model, inputs, call, loss = function()
    model = Wrap(model.float().eval(), call).eval()
    with torch.no_grad():
        for key, p in model.named_parameters():
            if p.dim() == 1:
                p += 0.1 * torch.randn(p.shape)
            p.copy_(few_values(p))
        for key, b in model.named_buffers():
            if key.endswith("running_mean"):
                b += few_values(0.1 * torch.randn(b.shape))
            if key.endswith("running_var"):
                b += few_values(torch.rand(b.shape))
        inputs = tuple(few_values(x) if x.is_floating_point() and x.dim() > 1 else x for x in inputs)
        output = model(*inputs)
    program = torch.export.export(model, inputs, strict=False)
    for node in program.graph.nodes:  # files and lines of the libraries
        for key in ("stack_trace", "source_fn_stack", "torch_fn"):
            node.meta.pop(key, None)
    torch.export.save(program, os.path.join(folder, name + ".pt2"))
    names = list(program.graph_signature.user_inputs)
    batch = {("input" if len(names) == 1 else n): x.contiguous().clone() for n, x in zip(names, inputs)}
    batch["target"] = few_values(torch.randn(output.shape)) if loss == "mse" else torch.randint(
        0, output.shape[-1], output.shape[:-1])
    save_file(batch, os.path.join(folder, name + ".batch.safetensors"))
    with open(os.path.join(folder, name + ".loss"), "w") as file:
        file.write(loss + "\n")
    print(name, sum(p.numel() for p in model.parameters()), "parameters,",
          len([n for n in program.graph.nodes if n.op == "call_function"]), "operations", flush=True)


def main():
    names, folder = sys.argv[1:], os.path.dirname(os.path.abspath(__file__))
    torch.set_num_threads(1)
    for function in ALL:
        if not names or function.__name__ in names:
            make(function, folder)
    if names:
        return
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for function in ALL:
            for ending in (".pt2", ".batch.safetensors", ".loss"):
                path = os.path.join(folder, function.__name__ + ending)
                with open(path, "rb") as file:
                    data = file.read()
                about = tarfile.TarInfo(function.__name__ + ending)
                about.size = len(data)
                tar.addfile(about, io.BytesIO(data))
                os.remove(path)
    with open(os.path.join(folder, "archives.tar.xz"), "wb") as file:
        file.write(lzma.compress(made.getvalue(), preset=9 | lzma.PRESET_EXTREME))


main()
