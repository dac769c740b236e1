// Reads coded weights and inputs, and writes their product with rounded inputs: number by number, then as this processor
// computes it. Without arguments it prints the outputs of a panel. `test_rounded.py` runs it.

#include <cstdio>
#include <vector>

#include "rounded_ways.h"

int main(int count, char**) {
  if (count == 1) return std::printf("%d\n", PANEL), 0;
  struct Sizes {
    int64_t bits, offsets, super, group, inputs, panels, rows;
  } sizes;
  if (std::fread(&sizes, sizeof sizes, 1, stdin) != 1) return 1;
  const Layout layout{sizes.bits, sizes.offsets != 0, sizes.super != 0, sizes.group};
  const size_t K = sizes.inputs, rows = sizes.rows, bytes = layout.bytes(sizes.inputs);
  std::vector<float> x(rows * K), found(rows * PANEL);
  std::vector<char> panels(bytes * sizes.panels);
  if (std::fread(x.data(), sizeof(float), x.size(), stdin) != x.size()) return 1;
  if (std::fread(panels.data(), 1, panels.size(), stdin) != panels.size()) return 1;
  std::vector<float> room((K / BLOCK + 1) * rows * FLOATS_OF_ROUNDED);
  Rounded* const blocks = reinterpret_cast<Rounded*>(room.data());
  round_inputs(x.data(), rows, K, blocks);
  const RoundedRows rounded = rounded_rows(blocks, rows, K);
  for (const RoundedPanel way : {RoundedPanel(reference), rounded_of(layout)}) {
    for (int64_t p = 0; p < sizes.panels; p++) {
      way(layout, panels.data() + p * bytes, rounded, K, {panels.data(), 0}, found.data());
      std::fwrite(found.data(), sizeof(float), found.size(), stdout);
    }
  }
}
