package main

import (
	"cmp"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// libraries returns the libraries that the dynamic linker loads for a program, by their expected paths, and the
// program's architecture. They are read below root, by default from this machine: Envoy's releases need a C library,
// which neither a Go module nor Envoy's wheel contains. The error names a missing library.
func libraries(path, root string) (tree, string, error) {
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
	at, err := below(root, linker)
	if err != nil {
		return nil, arch, err
	}
	files := tree{linker: {from: at, mode: 0o755}}
	needed, err := program.ImportedLibraries()
	for ; err == nil && len(needed) > 0; needed = needed[1:] {
		if needed[0] == filepath.Base(linker) {
			continue
		}
		at, found, opened := find(root, needed[0], program.Machine)
		if !found {
			return nil, arch, fmt.Errorf("%s has no %s for %s", cmp.Or(root, "this machine"), needed[0], arch)
		}
		if _, had := files[at]; !had {
			files[at] = file{from: filepath.Join(root, at), mode: 0o755}
			var more []string
			more, err = opened.ImportedLibraries()
			needed = append(needed, more...)
		}
		_ = opened.Close()
	}
	return files, arch, err
}

// interpreter returns the path of a program's dynamic linker; empty: it is static.
func interpreter(program *elf.File) (string, error) {
	for _, segment := range program.Progs {
		if segment.Type == elf.PT_INTERP {
			text, err := io.ReadAll(segment.Open())
			return strings.TrimRight(string(text), "\x00"), err
		}
	}
	return "", nil
}

// below returns the file below a root for a path; /lib may be /usr/lib.
func below(root, path string) (string, error) {
	if root == "" {
		return path, nil
	}
	for _, at := range []string{filepath.Join(root, path), filepath.Join(root, "usr", path)} {
		if _, err := os.Stat(at); err == nil {
			return at, nil
		}
	}
	return "", fmt.Errorf("%s has no %s", root, path)
}

// find searches the library paths of Debian and of Red Hat; at is the path at which their linkers search.
func find(root, library string, machine elf.Machine) (at string, found bool, opened *elf.File) {
	for _, pattern := range []string{"/lib/*-linux-gnu", "/usr/lib/*-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"} {
		folders, _ := filepath.Glob(filepath.Join(root, pattern))
		for _, folder := range folders {
			if opened, err := elf.Open(filepath.Join(folder, library)); err == nil {
				if opened.Machine == machine {
					return filepath.Join("/", strings.TrimPrefix(folder, root), library), true, opened
				}
				_ = opened.Close()
			}
		}
	}
	return "", false, nil
}

var libcSays = regexp.MustCompile(`GNU C Library \((.*?)\) stable release version [0-9.]+`)

// libcVersion returns the version in a C library; empty for other files.
func libcVersion(path string) string {
	if content, err := os.ReadFile(path); err == nil {
		if said := libcSays.FindSubmatch(content); said != nil {
			return string(said[1])
		}
	}
	return ""
}
