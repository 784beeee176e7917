print("x" * 1000)
raise SystemExit(4)
