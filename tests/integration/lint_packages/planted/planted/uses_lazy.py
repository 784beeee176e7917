from planted.lazy import platform, version

print(platform, version)
