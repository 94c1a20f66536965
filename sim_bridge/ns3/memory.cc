// SPDX-License-Identifier: MIT
// Operators new and delete for a program that asks for dozens of small blocks per packet, of few sizes: every thread
// keeps the blocks that it gives back, by size, and never returns them to the system.
#include <array>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

/// In front of every block, of which it keeps the alignment.
struct alignas(__STDCPP_DEFAULT_NEW_ALIGNMENT__) Header {
    std::size_t units = 0;  ///< size in headers, this one included; 0: from malloc
    Header* next = nullptr;
};

constexpr std::size_t largest_units = 64, chunk_units = 4096;

thread_local constinit std::array<Header*, largest_units + 1> given_back{};
thread_local constinit Header* chunk = nullptr;
thread_local constinit std::size_t left_units = 0;

Header* from_system(std::size_t units) {
    auto* header = static_cast<Header*>(std::malloc(units * sizeof(Header)));
    if (!header) throw std::bad_alloc();
    return header;
}

[[gnu::noinline]] void* fresh(std::size_t units) {
    if (units > largest_units) return ::new (from_system(units)) Header{} + 1;
    if (units > left_units) {  // what is left of the old chunk is lost
        chunk = from_system(chunk_units);
        left_units = chunk_units;
    }
    auto* header = ::new (chunk) Header{units, nullptr};
    chunk += units;
    left_units -= units;
    return header + 1;
}

}  // namespace

void* operator new(std::size_t bytes) {
    const std::size_t units = (bytes + 2 * sizeof(Header) - 1) / sizeof(Header);
    if (units > largest_units || !given_back[units]) return fresh(units);
    Header* header = given_back[units];
    given_back[units] = header->next;
    return header + 1;
}

void operator delete(void* block) noexcept {
    if (!block) return;
    Header* header = static_cast<Header*>(block) - 1;
    if (header->units == 0) return std::free(header);
    header->next = given_back[header->units];
    given_back[header->units] = header;
}

void operator delete(void* block, std::size_t) noexcept { operator delete(block); }
