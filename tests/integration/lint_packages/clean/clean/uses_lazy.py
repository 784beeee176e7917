from clean.lazy import version

print(version)
