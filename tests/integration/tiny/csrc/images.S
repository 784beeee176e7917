    .section .nv_fatbin, "a", @progbits
    .balign 8
    .incbin "add.fatbin"
    .section .note.GNU-stack, "", @progbits
