#include "fatbin.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace fw {
namespace {

// Layout of a container: a header, then entries one after another, each a header and a payload.
// Offsets are in bytes from the start of the header; all numbers are little-endian.
constexpr uint32_t kMagic = 0xBA55ED50;
constexpr uint64_t kContainerHeader = 16;  // +0 magic, +4 u16 version, +6 u16 size, +8 u64 payload
constexpr uint64_t kMinEntryHeader = 64;
constexpr uint64_t kMaxEntryHeader = 4096;
constexpr size_t kMaxEntries = 256;

constexpr uint64_t kFlagLz4 = 0x2000;
constexpr uint64_t kFlagZstd = 0x8000;
constexpr uint64_t kFlagSuffixA = 0x100000;
constexpr uint64_t kFlagSuffixF = 0x200000;

template <typename T>
T Read(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

struct PtxRelease {
  int32_t isa;
  int32_t toolkit;
};

constexpr PtxRelease kPtxReleases[] = {
    {700, 11000}, {701, 11010}, {702, 11020}, {703, 11030}, {704, 11040}, {705, 11050},
    {706, 11060}, {707, 11070}, {708, 11080}, {800, 12000}, {801, 12010}, {802, 12020},
    {803, 12030}, {804, 12040}, {805, 12050}, {806, 12070}, {807, 12080}, {808, 12090},
    {900, 13000}, {901, 13010}, {902, 13020}, {903, 13030}, {904, 13040},
};

// The CUDA release that made a cubin, 0 where it says nothing. Up to CUDA 12 (ABI 7) e_version
// holds it, 118 for 11.8; from CUDA 13 on (ABI 8) it is 1.
int32_t ToolkitOfCubin(const uint8_t* payload, uint64_t size) {
  if (size < 64 || std::memcmp(payload,
                               "\x7f"
                               "ELF",
                               4) != 0)
    return 0;
  if (payload[8] >= 8) return 13000;
  const uint32_t version = Read<uint32_t>(payload + 20);
  if (version < 80 || version > 999) return 0;
  return static_cast<int32_t>(version / 10 * 1000 + version % 10 * 10);
}

ImageEntry ReadEntry(const uint8_t* at, uint16_t kind, uint64_t header_size,
                     uint64_t payload_size) {
  const uint64_t flags = Read<uint64_t>(at + 40);
  ImageEntry entry{};
  entry.kind = static_cast<ImageKind>(kind);
  entry.arch = static_cast<int32_t>(Read<uint32_t>(at + 28));
  entry.suffix = (flags & kFlagSuffixA) != 0 ? 'a' : (flags & kFlagSuffixF) != 0 ? 'f' : '\0';
  entry.compressed = (flags & (kFlagLz4 | kFlagZstd)) != 0;
  entry.begin = at;
  entry.header_size = header_size;
  entry.payload_size = payload_size;
  if (entry.kind == ImageKind::kPtx) {
    entry.isa = Read<uint16_t>(at + 26) * 100 + Read<uint16_t>(at + 24);
    entry.toolkit = ToolkitOfPtx(entry.isa);
  } else if (!entry.compressed) {
    entry.toolkit = ToolkitOfCubin(at + header_size, payload_size);
  }
  return entry;
}

bool ArchFits(const ImageEntry& entry, Capability capability) {
  const bool same_major = entry.arch / 10 == capability.major;
  const bool not_above = entry.arch <= capability.number();
  if (entry.suffix == 'a') return entry.arch == capability.number();
  if (entry.suffix == 'f' || entry.kind == ImageKind::kCubin) return same_major && not_above;
  return not_above;
}

// A driver runs the cubins of every release of its own major and of older ones, but compiles only
// the PTX that its own release knows.
bool DriverKnows(const ImageEntry& entry, int32_t driver_version) {
  if (entry.kind == ImageKind::kPtx) return entry.toolkit <= driver_version;
  return entry.toolkit / 1000 <= driver_version / 1000;
}

// How good a fitting image is: cubin over PTX, then the arch, then the narrower target, then the
// ISA.
uint64_t Rank(const ImageEntry& entry) {
  const uint64_t cubin = entry.kind == ImageKind::kCubin ? 1 : 0;
  const uint64_t narrow = entry.suffix == 'a' ? 2 : entry.suffix == 'f' ? 1 : 0;
  return cubin << 62 | static_cast<uint64_t>(entry.arch) << 20 | narrow << 16 |
         static_cast<uint64_t>(entry.isa);
}

std::string CapabilityName(Capability capability) {
  return std::to_string(capability.major) + "." + std::to_string(capability.minor);
}

}  // namespace

int32_t ToolkitOfPtx(int32_t isa) {
  for (const PtxRelease& release : kPtxReleases) {
    if (isa <= release.isa) return release.toolkit;
  }
  return std::end(kPtxReleases)[-1].toolkit + 1;
}

Fatbin ReadFatbin(const uint8_t* begin, const uint8_t* end) {
  Fatbin result;
  const auto fail = [&result](const std::string& why) {
    result.entries.clear();
    result.error = "malformed fatbin: " + why;
    return result;
  };
  const uint64_t size = static_cast<uint64_t>(end - begin);
  if (size < kContainerHeader) return fail("shorter than its header");
  if (Read<uint32_t>(begin) != kMagic) return fail("wrong magic number");
  const uint64_t header = Read<uint16_t>(begin + 6);
  const uint64_t payload = Read<uint64_t>(begin + 8);
  if (header < kContainerHeader || header > size || payload > size - header) {
    return fail("the container runs past its end");
  }
  uint64_t at = header;
  const uint64_t stop = header + payload;
  for (size_t count = 0; at < stop; ++count) {
    if (count == kMaxEntries) return fail("more than " + std::to_string(kMaxEntries) + " entries");
    if (stop - at < kMinEntryHeader) return fail("an entry's header runs past the container");
    const uint8_t* entry = begin + at;
    const uint16_t kind = Read<uint16_t>(entry);
    const uint64_t entry_header = Read<uint32_t>(entry + 4);
    const uint64_t entry_payload = Read<uint64_t>(entry + 8);
    if (entry_header < kMinEntryHeader || entry_header > kMaxEntryHeader) {
      return fail("an entry's header has " + std::to_string(entry_header) + " bytes");
    }
    if (entry_header > stop - at || entry_payload > stop - at - entry_header) {
      return fail("an entry runs past the container");
    }
    if (kind == static_cast<uint16_t>(ImageKind::kPtx) ||
        kind == static_cast<uint16_t>(ImageKind::kCubin)) {
      if (Read<uint32_t>(entry + 28) > 9999) return fail("an entry names an impossible arch");
      result.entries.push_back(ReadEntry(entry, kind, entry_header, entry_payload));
    }
    at += entry_header + entry_payload;
  }
  if (std::any_of(begin + stop, end, [](uint8_t byte) { return byte != 0; })) {
    return fail("something follows the container");
  }
  return result;
}

const ImageEntry* ChooseImage(const std::vector<ImageEntry>& entries, Capability capability,
                              int32_t driver_version) {
  const ImageEntry* best = nullptr;
  for (const ImageEntry& entry : entries) {
    if (!ArchFits(entry, capability) || !DriverKnows(entry, driver_version)) continue;
    if (best == nullptr || Rank(entry) > Rank(*best)) best = &entry;
  }
  return best;
}

std::string ArchName(const ImageEntry& entry) {
  std::string name = CapabilityName({entry.arch / 10, entry.arch % 10});
  if (entry.suffix != '\0') name += entry.suffix;
  return entry.kind == ImageKind::kPtx ? name + "+PTX" : name;
}

std::string ArchList(const std::vector<ImageEntry>& entries) {
  std::vector<std::pair<int64_t, std::string>> archs;
  for (const ImageEntry& entry : entries) {
    const int64_t order = entry.arch * 1000 + entry.suffix * 2;
    archs.emplace_back(order + (entry.kind == ImageKind::kPtx ? 1 : 0), ArchName(entry));
  }
  std::sort(archs.begin(), archs.end());
  archs.erase(std::unique(archs.begin(), archs.end()), archs.end());
  std::string text;
  for (const auto& arch : archs) text += (text.empty() ? "" : " ") + arch.second;
  return text;
}

std::string ReleaseName(int32_t version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::vector<uint8_t> ImageForDriver(const ImageEntry& entry) {
  const uint64_t entry_size = entry.header_size + entry.payload_size;
  if (!entry.compressed) {
    std::vector<uint8_t> text(entry.payload_size + 1);  // the last byte stays zero
    std::memcpy(text.data(), entry.begin + entry.header_size, entry.payload_size);
    return text;
  }
  const uint16_t version = 1;
  const uint16_t header = kContainerHeader;
  std::vector<uint8_t> image(kContainerHeader + entry_size);
  std::memcpy(image.data(), &kMagic, sizeof kMagic);
  std::memcpy(image.data() + 4, &version, sizeof version);
  std::memcpy(image.data() + 6, &header, sizeof header);
  std::memcpy(image.data() + 8, &entry_size, sizeof entry_size);
  std::memcpy(image.data() + kContainerHeader, entry.begin, entry_size);
  return image;
}

std::string NoImageFits(const std::string& image, const std::vector<ImageEntry>& entries,
                        const DeviceFacts& device) {
  const std::string capability = CapabilityName(device.capability);
  const std::string archs = ArchList(entries);
  std::string text = "CUDA device " + std::to_string(device.ordinal) + " (" + device.name +
                     ", capability " + capability + ") can run no image of " + image +
                     "; archs inside: " + (archs.empty() ? "none" : archs);
  int32_t needed = 0;  // the oldest driver release that would do
  for (const ImageEntry& entry : entries) {
    if (!ArchFits(entry, device.capability)) continue;
    const bool cubin = entry.kind == ImageKind::kCubin;
    const int32_t release = cubin ? entry.toolkit / 1000 * 1000 : entry.toolkit;
    if (needed == 0 || release < needed) needed = release;
  }
  if (needed == 0) {
    return text + "; install a freewheel variant whose archs include " + capability +
           " or that carries PTX";
  }
  return text + "; the driver implements CUDA " + ReleaseName(device.driver_version) +
         " and those that fit need " + ReleaseName(needed) +
         " or newer: update the NVIDIA driver, or install a freewheel variant of CUDA " +
         ReleaseName(device.driver_version) + " or older whose archs include " + capability +
         " or that carries PTX";
}

}  // namespace fw
