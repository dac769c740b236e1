// Runs compiled code for another processor, under an emulator: `remote.py` sends the memory of a call and receives it
// back. Numbers are int64.
//
//      call: 0 sizes, 1 fault, 2 forward; with something else in place of the model: 3 rows, 4 bytes of a panel, 5 panels
//      model, pass: where they are in the memory; -1 for none
//      bytes of the memory, how many addresses are in it, where each is, the memory; addresses are places in it

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "pass.cpp"

namespace {

void get(void* to, size_t bytes) {
  if (std::fread(to, 1, bytes, stdin) != bytes) std::exit(0);
}

void put(const void* from, size_t bytes) { std::fwrite(from, 1, bytes, stdout); }

void put(int64_t number) { put(&number, sizeof number); }

}  // namespace

int main() {
  for (;;) {
    int64_t call, model, pass, bytes, addresses;
    for (int64_t* each : {&call, &model, &pass, &bytes, &addresses}) get(each, sizeof *each);
    std::vector<int64_t> places(addresses);
    get(places.data(), addresses * sizeof(int64_t));
    // As far from a multiple of 64 as the address of an array of Python may be.
    char* memory = static_cast<char*>(std::aligned_alloc(64, (bytes + 127) / 64 * 64));
    get(memory, bytes);
    for (const int64_t place : places) {
      int64_t address;
      std::memcpy(&address, memory + place, sizeof address);
      address += reinterpret_cast<int64_t>(memory);
      std::memcpy(memory + place, &address, sizeof address);
    }
    const Model* m = reinterpret_cast<const Model*>(memory + model);
    const Pass* p = pass < 0 ? nullptr : reinterpret_cast<const Pass*>(memory + pass);
    if (call == 0) {
      put(polydraft_panel());
      put(polydraft_lanes());
      put(polydraft_rounds());
    } else if (call == 1) {
      const char* fault = polydraft_fault(m, p);
      put(fault ? std::strlen(fault) : -1);
      if (fault) put(fault, std::strlen(fault));
    } else if (call == 3) {
      put(polydraft_rows(reinterpret_cast<const Rows*>(memory + model)));
      put(memory, bytes);
    } else if (call == 4) {
      const Stored* s = reinterpret_cast<const Stored*>(memory + model);
      put(polydraft_panel_bytes(s->type, s->in, s->outputs));
    } else if (call == 5) {
      put(polydraft_panels(reinterpret_cast<const Stored*>(memory + model)));
      put(memory, bytes);
    } else {
      put(polydraft_forward(m, p));
      put(memory, bytes);
    }
    std::fflush(stdout);
    std::free(memory);
  }
}
