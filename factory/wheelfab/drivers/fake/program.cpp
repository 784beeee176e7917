#include "program.h"

#include <elf.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace fake {
namespace {

constexpr uint32_t kContainerMagic = 0xBA55ED50;
constexpr uint16_t kCudaMachine = 190;

template <typename T>
T At(const uint8_t* where) {
  T value;
  std::memcpy(&value, where, sizeof value);
  return value;
}

struct Cubin {
  const uint8_t* base;
  const Elf64_Ehdr* header;
  const Elf64_Shdr* sections;

  explicit Cubin(const uint8_t* image)
      : base(image),
        header(reinterpret_cast<const Elf64_Ehdr*>(image)),
        sections(reinterpret_cast<const Elf64_Shdr*>(image + header->e_shoff)) {}

  const char* Name(const Elf64_Shdr& section) const {
    return reinterpret_cast<const char*>(base + sections[header->e_shstrndx].sh_offset +
                                         section.sh_name);
  }
  // ABI 7 (CUDA 12 and older) and ABI 8 (CUDA 13) keep the arch in different bytes.
  bool NewAbi() const { return header->e_ident[EI_ABIVERSION] >= 8; }
  int32_t Arch() const { return (NewAbi() ? header->e_flags >> 8 : header->e_flags) & 0xff; }
  bool ExactOnly() const { return (header->e_flags & (NewAbi() ? 0x8 : 0x800)) != 0; }
};

// .nv.info and .nv.info.<kernel> are lists of attributes: u8 format, u8 attribute, u16 value or
// size, and with format 4 that many bytes, which `use` is given.
template <typename Use>
void ForEachAttribute(const uint8_t* at, uint64_t size, const Use& use) {
  const uint8_t* end = at + size;
  while (end - at >= 4) {
    const uint8_t format = at[0];
    const uint8_t attribute = at[1];
    const uint16_t bytes = format == 4 ? At<uint16_t>(at + 2) : 0;
    at += 4;
    if (bytes > end - at) return;
    use(attribute, at, bytes);
    at += bytes;
  }
}

// 0x17 describes a parameter, 0x05 is __launch_bounds__.
void ReadKernelInfo(const uint8_t* info, uint64_t size, KernelFacts* facts) {
  ForEachAttribute(info, size, [facts](uint8_t attribute, const uint8_t* at, uint16_t bytes) {
    if (attribute == 0x17 && bytes >= 12) {
      const size_t ordinal = At<uint16_t>(at + 4);
      if (facts->param_sizes.size() <= ordinal) facts->param_sizes.resize(ordinal + 1, -1);
      facts->param_sizes[ordinal] = static_cast<int32_t>(At<uint32_t>(at + 8) >> 18);
    }
    if (attribute == 0x05 && bytes >= 12) {
      facts->max_threads =
          static_cast<int32_t>(At<uint32_t>(at) * At<uint32_t>(at + 4) * At<uint32_t>(at + 8));
    }
  });
}

// What follows `prefix` in `name`; "" when it does not begin so.
std::string After(const std::string& prefix, const std::string& name) {
  return name.rfind(prefix, 0) == 0 ? name.substr(prefix.size()) : "";
}

void ReadKernels(const Cubin& cubin, Program* program) {
  std::map<uint32_t, std::string> symbols;  // of the kernels, as .nv.info names them
  for (int i = 0; i < cubin.header->e_shnum; ++i) {
    const Elf64_Shdr& section = cubin.sections[i];
    const std::string kernel = After(".text.", cubin.Name(section));
    if (kernel.empty()) continue;
    program->kernels[kernel];
    symbols[section.sh_info & 0xffffff] = kernel;
  }
  for (int i = 0; i < cubin.header->e_shnum; ++i) {
    const Elf64_Shdr& section = cubin.sections[i];
    const std::string name = cubin.Name(section);
    const uint8_t* data = cubin.base + section.sh_offset;
    const auto described = program->kernels.find(After(".nv.info.", name));
    const auto sharing = program->kernels.find(After(".nv.shared.", name));
    if (described != program->kernels.end()) {
      ReadKernelInfo(data, section.sh_size, &described->second);
    } else if (sharing != program->kernels.end()) {
      sharing->second.static_shared = static_cast<int64_t>(section.sh_size);
    } else if (name == ".nv.info") {
      ForEachAttribute(data, section.sh_size, [&](uint8_t attribute, const uint8_t* at, uint16_t) {
        const auto symbol = attribute == 0x2f ? symbols.find(At<uint32_t>(at)) : symbols.end();
        if (symbol != symbols.end()) {
          program->kernels[symbol->second].registers = At<int32_t>(at + 4);
        }
      });
    }
  }
}

Result LoadCubin(const uint8_t* image, int32_t arch, int32_t version, Program* program,
                 std::string* why) {
  const Cubin cubin(image);
  program->arch = cubin.Arch();
  if (cubin.header->e_machine != kCudaMachine) {
    *why = "an ELF file of machine " + std::to_string(cubin.header->e_machine);
    return kInvalidImage;
  }
  if (cubin.header->e_version >= 80 &&
      cubin.header->e_version / 10 > static_cast<uint32_t>(version) / 1000) {
    *why = "a cubin of CUDA " + std::to_string(cubin.header->e_version / 10) + " for driver " +
           std::to_string(version);
    return kInvalidImage;
  }
  const bool fits = cubin.ExactOnly() ? program->arch == arch
                                      : program->arch / 10 == arch / 10 && program->arch <= arch;
  if (!fits) {
    *why = "a cubin of sm_" + std::to_string(program->arch) + " for a device of sm_" +
           std::to_string(arch);
    return kNoBinaryForGpu;
  }
  ReadKernels(cubin, program);
  return 0;
}

// First CUDA release of a PTX ISA, for those that this project's toolchains emit.
int32_t ReleaseOf(int32_t isa) {
  if (isa <= 80) return isa <= 78 ? 11080 : 12000;
  if (isa <= 85) return 12000 + (isa - 80) * 10;
  if (isa <= 88) return 12070 + (isa - 86) * 10;
  return 13000 + (isa - 90) * 10;
}

int32_t SizeOfType(const std::string& type) {
  const size_t digits = type.find_first_of("0123456789");
  return digits == std::string::npos ? -1 : std::atoi(type.c_str() + digits) / 8;
}

// One declaration in an entry's list: ".param .align 8 .b8 NAME[64]" or ".param .u32 NAME".
int32_t SizeOfParam(const std::string& declaration) {
  const size_t bracket = declaration.find('[');
  if (bracket != std::string::npos) return std::atoi(declaration.c_str() + bracket + 1);
  const size_t type = declaration.find('.', declaration.find(".param") + 6);
  return type == std::string::npos ? -1 : SizeOfType(declaration.substr(type));
}

void ReadEntries(const std::string& text, Program* program) {
  const std::string word = ".entry ";
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at)) {
    at += word.size();
    const size_t open = text.find('(', at);
    const size_t close = text.find(')', at);
    if (open == std::string::npos || close == std::string::npos) return;
    KernelFacts& facts = program->kernels[text.substr(at, open - at)];
    size_t declaration = text.find(".param", open);
    while (declaration < close) {
      const size_t next = std::min(text.find(".param", declaration + 6), close);
      facts.param_sizes.push_back(SizeOfParam(text.substr(declaration, next - declaration)));
      declaration = next;
    }
  }
}

Result CheckPtx(int32_t isa, int32_t target, char suffix, int32_t arch, int32_t version,
                std::string* why) {
  if (ReleaseOf(isa) > version) {
    *why = "PTX ISA " + std::to_string(isa) + " for driver " + std::to_string(version);
    return kUnsupportedPtxVersion;
  }
  const bool fits = suffix == 'a'   ? target == arch
                    : suffix == 'f' ? target / 10 == arch / 10 && target <= arch
                                    : target <= arch;
  if (fits) return 0;
  *why = "PTX for compute_" + std::to_string(target) + " on a device of sm_" + std::to_string(arch);
  return kNoBinaryForGpu;
}

Result LoadPtx(const std::string& text, int32_t arch, int32_t version, Program* program,
               std::string* why) {
  const size_t isa = text.find(".version ");
  const size_t target = text.find(".target sm_");
  if (isa == std::string::npos || target == std::string::npos) {
    *why = "neither a cubin, nor a container, nor PTX";
    return kInvalidImage;
  }
  char* rest = nullptr;
  const char* number = text.c_str() + isa + 9;
  const int32_t major = static_cast<int32_t>(std::strtol(number, &rest, 10));
  const int32_t minor = *rest == '.' ? std::atoi(rest + 1) : 0;
  program->ptx = true;
  program->arch = static_cast<int32_t>(std::strtol(text.c_str() + target + 11, &rest, 10));
  const Result result = CheckPtx(major * 10 + minor, program->arch, *rest, arch, version, why);
  if (result == 0) ReadEntries(text, program);
  return result;
}

// An LZ4 block: literals and matches by turns, each length in a nibble and then in bytes of 255.
bool Inflate(const uint8_t* at, size_t size, size_t inflated, std::string* text) {
  const uint8_t* end = at + size;
  const auto length = [&](size_t nibble) {
    for (uint8_t byte = 255; nibble >= 15 && byte == 255 && at < end; nibble += byte) byte = *at++;
    return nibble;
  };
  while (at < end) {
    const uint8_t token = *at++;
    const size_t literals = length(token >> 4);
    if (literals > static_cast<size_t>(end - at)) return false;
    text->append(reinterpret_cast<const char*>(at), literals);
    at += literals;
    if (at == end) break;
    if (end - at < 2) return false;
    const size_t back = At<uint16_t>(at);
    at += 2;
    size_t copy = length(token & 15) + 4;
    if (back == 0 || back > text->size() || text->size() + copy > inflated) return false;
    for (; copy > 0; --copy) text->push_back((*text)[text->size() - back]);
  }
  return text->size() == inflated;
}

struct Entry {
  uint16_t kind;
  int32_t arch, isa;
  char suffix;
  uint64_t flags, size, packed, inflated;
  const uint8_t* payload;
};

std::vector<Entry> Entries(const uint8_t* image) {
  std::vector<Entry> entries;
  const uint8_t* at = image + At<uint16_t>(image + 6);
  const uint8_t* end = at + At<uint64_t>(image + 8);
  while (at < end) {
    Entry entry{};
    entry.kind = At<uint16_t>(at);
    entry.payload = at + At<uint32_t>(at + 4);
    entry.size = At<uint64_t>(at + 8);
    entry.packed = At<uint32_t>(at + 16);
    entry.isa = At<uint16_t>(at + 26) * 10 + At<uint16_t>(at + 24);
    entry.arch = At<int32_t>(at + 28);
    entry.flags = At<uint64_t>(at + 40);
    entry.inflated = At<uint64_t>(at + 56);
    entry.suffix = entry.flags & 0x100000 ? 'a' : entry.flags & 0x200000 ? 'f' : '\0';
    entries.push_back(entry);
    at = entry.payload + entry.size;
  }
  return entries;
}

Result LoadPtxEntry(const Entry& entry, int32_t arch, int32_t version, Program* program,
                    std::string* why) {
  std::string text;
  if ((entry.flags & 0x2000) != 0) {
    if (!Inflate(entry.payload, entry.packed, entry.inflated, &text)) {
      *why = "LZ4 data that does not inflate";
      return kInvalidPtx;
    }
  } else if ((entry.flags & 0x8000) != 0) {
    program->known = false;
    program->ptx = true;
    program->arch = entry.arch;
    return CheckPtx(entry.isa, entry.arch, entry.suffix, arch, version, why);
  } else {
    text.assign(reinterpret_cast<const char*>(entry.payload), entry.size);
  }
  return LoadPtx(text, arch, version, program, why);
}

// The driver's own choice: the best cubin that fits, else PTX, newest arch first.
Result LoadContainer(const uint8_t* image, int32_t arch, int32_t version, Program* program,
                     std::string* why) {
  std::vector<Entry> entries = Entries(image);
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.kind != b.kind ? a.kind > b.kind : a.arch > b.arch;
  });
  Result result = kNoBinaryForGpu;
  *why = "an empty container";
  for (const Entry& entry : entries) {
    *program = Program();
    if (entry.kind == 2) {
      if ((entry.flags & 0xa000) != 0) {
        *why = "a compressed cubin, which this fake does not read";
        continue;
      }
      result = LoadCubin(entry.payload, arch, version, program, why);
    } else if (entry.kind == 1) {
      result = LoadPtxEntry(entry, arch, version, program, why);
    }
    if (result == 0) return 0;
  }
  return result;
}

}  // namespace

Result LoadProgram(const void* image, int32_t arch, int32_t version, Program* program,
                   std::string* why) {
  const auto* bytes = static_cast<const uint8_t*>(image);
  if (std::memcmp(bytes, ELFMAG, SELFMAG) == 0) {
    return LoadCubin(bytes, arch, version, program, why);
  }
  if (At<uint32_t>(bytes) == kContainerMagic) {
    return LoadContainer(bytes, arch, version, program, why);
  }
  return LoadPtx(reinterpret_cast<const char*>(bytes), arch, version, program, why);
}

}  // namespace fake
