import threading

threading.Thread(target=threading.Event().wait, name="waiter", daemon=True).start()
