from runs import driver

VALUE = driver.STATUS
