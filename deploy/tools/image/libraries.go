package main

import (
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// libraries is what the dynamic linker loads for a program, by the paths at which it looks for them, and the program's architecture. Those
// of this machine are taken: Envoy's releases need a C library, which comes neither from a Go module nor from Envoy's wheel.
func libraries(path string) (tree, string, error) {
	program, err := elf.Open(path)
	if err != nil {
		return nil, "", err
	}
	defer program.Close()
	arch := ""
	for name, machine := range machines {
		if machine == program.Machine {
			arch = name
		}
	}
	if arch == "" {
		return nil, "", fmt.Errorf("no image is made for %s", program.Machine)
	}
	linker, err := interpreter(program)
	if linker == "" || err != nil {
		return nil, arch, err
	}
	files := tree{linker: {from: linker, mode: 0o755}}
	needed, err := program.ImportedLibraries()
	for ; err == nil && len(needed) > 0; needed = needed[1:] {
		if needed[0] == filepath.Base(linker) {
			continue
		}
		at, found, opened := find(needed[0], program.Machine)
		if !found {
			return nil, arch, fmt.Errorf("this machine has no %s", needed[0])
		}
		if _, had := files[at]; !had {
			files[at] = file{from: at, mode: 0o755}
			var more []string
			more, err = opened.ImportedLibraries()
			needed = append(needed, more...)
		}
		_ = opened.Close()
	}
	return files, arch, err
}

// interpreter is the path of the dynamic linker that a program names; empty: it is static.
func interpreter(program *elf.File) (string, error) {
	for _, segment := range program.Progs {
		if segment.Type == elf.PT_INTERP {
			text, err := io.ReadAll(segment.Open())
			return strings.TrimRight(string(text), "\x00"), err
		}
	}
	return "", nil
}

// find looks where the dynamic linkers of Debian and of Red Hat do.
func find(library string, machine elf.Machine) (at string, found bool, opened *elf.File) {
	multi, _ := filepath.Glob("/lib/*-linux-gnu")
	for _, folder := range append(multi, "/lib64", "/usr/lib64", "/lib", "/usr/lib") {
		at = filepath.Join(folder, library)
		if opened, err := elf.Open(at); err == nil {
			if opened.Machine == machine {
				return at, true, opened
			}
			_ = opened.Close()
		}
	}
	return "", false, nil
}

var libcSays = regexp.MustCompile(`GNU C Library \((.*?)\) stable release version [0-9.]+`)

// libcVersion is what a C library says of itself; other files say nothing.
func libcVersion(path string) string {
	if content, err := os.ReadFile(path); err == nil {
		if said := libcSays.FindSubmatch(content); said != nil {
			return string(said[1])
		}
	}
	return ""
}
