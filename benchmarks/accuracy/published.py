"""What other predictors reach, as their authors or re-runs of their public code state it."""

# ruff: noqa: E501, rows of a table cannot be broken

PUBLISHED = """## Beside other predictors

Figures of others on public measurements, by the protocol that each states; ours, below, on the rows that this page
lists. None of them gives an interval. *Re-run*: their public code or committed predictions, scored again; *claim*: their own.

| predictor | what, on which rows | error, % | kind |
|---|---|---|---|
| NeuSight (ASPLOS 2025, sitar-lab/NeuSight 6945927) | fp32 products above 30 us, mean: H100, L4, A100-80-PCIe (unseen) | 19.3, 33.3, 25.1 | re-run |
| NeuSight | the same on devices that it was trained on: A100-40, V100, T4, P4, P100 | 19.6, 14.2, 44.2, 65.9, 24.1 | re-run |
| NeuSight | the same on MI100, MI210, MI250 | 34.9, 26.4, 27.5 | re-run |
| NeuSight | vector operators: H100, L4, A100-80-PCIe | 23.0, 81.6, 30.9 | re-run |
| LLMCompass (ISCA 2024, 2e015fd) | 11 products on A100, its own file and constants | 9.6 (roofline with the same constants 18.7) | re-run |
| LLMCompass | per operator | 10.9 | claim |
| AIConfigurator (ai-dynamo 095f58a) | products, new sites of a measured device: median / p90; no answer without tables but a roofline | 3.6 / 14.7 | claim |
| AIConfigurator | products beyond the measured range, median; p90 | 8.9-15.1; 51-112 | claim |
| AIConfigurator | prefill attention: median / p90 | 2.0 / 9.7 | claim |
| nvMatmulHeuristics 0.1.0.27 | bf16 products, mean, all / above 50 us: H100, B200, A100, L40S | 151/28, 158/28, 97/20, 277/91 | re-run |
| plain roofline | the column *roofline* below | | here |

## By family

*Half width over error*: half width of the 90 % interval over the mean absolute error, averaged over rows of a block.
*At best*: the same of the shortest interval that holds 90 % of the block's scored rows, were it known beforehand. Of
normal errors it is 2.06, of errors with longer tails more: an interval is narrower only where it tells sure rows from
unsure ones.
*Beats bound*: rows measured faster than their bound although that is more than the last cache could have fed: layers
of experts with skewed load, where fewer experts were drawn than the rule of their collector says. Convolutions of
several taps are held to the bound of any algorithm, as libraries run them by Winograd's and FFT, too. Rows that fit the
cache and beat their bound lay in it: on the L40S, whose 96 MiB hold the experts of small layers, up to 5 % of a block.

"""
