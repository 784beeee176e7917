// Reads a fatbin container and picks the one image that a device can run, so that the choice and
// the sentence for a device that no image fits are ours, whatever the driver would say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace fw {

enum class ImageKind : uint16_t { kPtx = 1, kCubin = 2 };

// A device's compute capability.
struct Capability {
  int32_t major = 0;
  int32_t minor = 0;
  int32_t number() const { return major * 10 + minor; }
};

// One cubin or PTX text inside a container; the pointers go into the container itself.
struct ImageEntry {
  ImageKind kind;
  int32_t arch;          // 80, 90, 120
  char suffix;           // 0, 'a' (this capability only), 'f' (this family)
  int32_t toolkit;       // CUDA release that made it, as 12010; 0 when not known
  int32_t isa;           // PTX only: ISA version, as 801 for 8.1
  bool compressed;       // LZ4 or zstd
  const uint8_t* begin;  // the entry with its header
  uint64_t header_size;
  uint64_t payload_size;
};

// What a container holds, or why it cannot be read.
struct Fatbin {
  std::vector<ImageEntry> entries;
  std::string error;  // empty when well
};

// Who asks for an image, for the sentence when none fits.
struct DeviceFacts {
  int32_t ordinal = 0;
  std::string name;  // "NVIDIA H200"
  Capability capability;
  int32_t driver_version = 0;  // CUDA release that the driver implements, as 12010
};

// Reads the container in [begin, end). Never reads outside it, whatever it holds; LTO IR and other
// kinds are left out. Zero padding after the container is allowed.
Fatbin ReadFatbin(const uint8_t* begin, const uint8_t* end);

// The image to hand to a driver that implements CUDA `driver_version` (12010 is 12.1): the highest
// cubin of the capability's major that is not above its minor, else the highest PTX not above the
// capability whose ISA this driver knows. `a` fits its capability only, `f` its major and any minor
// from its own. Null when none fits.
const ImageEntry* ChooseImage(const std::vector<ImageEntry>& entries, Capability capability,
                              int32_t driver_version);

// The first CUDA release whose driver compiles this PTX ISA, as 12010 for 801; for an ISA newer
// than any known here, one more than the last known release. Source: "PTX ISA", release notes,
// table "PTX Release History" (7.8 is CUDA 11.8 ... 9.4 is CUDA 13.4). Minor-version compatibility
// does not reach PTX: a 12.0 driver runs cubins of 12.1 and refuses its PTX.
int32_t ToolkitOfPtx(int32_t isa);

// The archs inside, ascending, as "8.0 8.6 9.0a 9.0+PTX"; "" for none.
std::string ArchList(const std::vector<ImageEntry>& entries);

// An arch of one entry, as "9.0a" or "9.0+PTX".
std::string ArchName(const ImageEntry& entry);

// 12010 as "12.1".
std::string ReleaseName(int32_t version);

// What cuModuleLoadData is given for this entry alone: the cubin or the PTX text with a closing
// zero, or, when it is compressed, a container of one entry.
std::vector<uint8_t> ImageForDriver(const ImageEntry& entry);

// Why no image fits, naming the device, its capability, the archs inside, and what to install.
std::string NoImageFits(const std::string& image, const std::vector<ImageEntry>& entries,
                        const DeviceFacts& device);

}  // namespace fw
