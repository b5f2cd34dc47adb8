package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// Equal programs yield equal bytes, at any time and on any machine, and registries accept the layout.
func TestTwoAssembliesAreEqual(t *testing.T) {
	first, second := assembled(t, time.Unix(1000, 0), 0o600), assembled(t, time.Unix(2000, 0), 0o755)
	a, b := contents(t, first), contents(t, second)
	if !maps.Equal(a, b) || len(a) < 10 {
		t.Fatalf("%d files and %d, or they differ: %q, %q", len(a), len(b), slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b)))
	}
	index, err := layout.ImageIndexFromPath(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, one := range platforms(t, index) {
		config, err := one.image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintln(one.name, config.Architecture, config.Config.User, config.Config.Entrypoint, config.Config.Labels["org.opencontainers.image.version"],
			config.Config.Labels["org.opencontainers.image.revision"], config.Created.Unix(), files(t, one.image)))
	}
	want := []string{
		"navarch/navarchd:v1 amd64 1337:1337 [/usr/local/bin/navarchd] v1 c0ffee 77 navarchctl navarchctl.cdx.json navarchd navarchd.cdx.json var/lib/navarch:1337",
		"navarch/navarchd:v1 arm64 1337:1337 [/usr/local/bin/navarchd] v1 c0ffee 77 navarchctl navarchctl.cdx.json navarchd navarchd.cdx.json var/lib/navarch:1337",
		"navarch/navarch-agent:v1 amd64 1337:1337 [/usr/local/bin/navarch-agent] v1 c0ffee 77 envoy navarch-agent navarch-agent.cdx.json etc/istio/proxy:1337 var/lib/istio/data:1337",
		"navarch/navarch-agent:v1 arm64 1337:1337 [/usr/local/bin/navarch-agent] v1 c0ffee 77 envoy navarch-agent navarch-agent.cdx.json etc/istio/proxy:1337 var/lib/istio/data:1337",
		"navarch/navarch-cni:v1 amd64 1337:1337 [/usr/local/bin/navarch-cni] v1 c0ffee 77 navarch-cni navarch-cni.cdx.json",
		"navarch/navarch-cni:v1 arm64 1337:1337 [/usr/local/bin/navarch-cni] v1 c0ffee 77 navarch-cni navarch-cni.cdx.json",
	}
	if got, want := strings.Join(got, ""), strings.Join(want, "\n")+"\n"; got != want {
		t.Errorf("the layout has\n%swant\n%s", got, want)
	}
}

// Images have complete names for containerd, because kubelets request that name: a name without a registry gets the
// default one.
func TestNamesOfContainerd(t *testing.T) {
	index, err := layout.ImageIndexFromPath(assembled(t, time.Now(), 0o755))
	must(t, err)
	top, err := index.IndexManifest()
	must(t, err)
	for _, d := range top.Manifests {
		if name, short := d.Annotations["io.containerd.image.name"], d.Annotations["org.opencontainers.image.ref.name"]; name != "docker.io/"+short || !strings.HasPrefix(short, "navarch/") {
			t.Errorf("containerd is told %s, of %s", name, short)
		}
	}
	for name, want := range map[string]string{"navarch/a:1": "docker.io/navarch/a:1", "example.com/a:1": "example.com/a:1", "localhost/a:1": "localhost/a:1", "here:5000/a:1": "here:5000/a:1"} {
		if got := qualified(name); got != want {
			t.Errorf("%s is %s", name, got)
		}
	}
}

// A program that would not run in a container is refused, and no files are left behind.
func TestWhatDoesNotRunIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(t *testing.T, o *options)
		want    string
	}{
		"no tag":            {func(_ *testing.T, o *options) { o.version = "a b" }, "is no tag"},
		"there already":     {func(t *testing.T, o *options) { must(t, os.Mkdir(o.out, 0o755)) }, "exists"},
		"a program is away": {func(t *testing.T, o *options) { must(t, os.Remove(filepath.Join(o.programs, "arm64/navarchctl"))) }, "arm64/navarchctl"},
		"no list of parts": {func(t *testing.T, o *options) {
			must(t, os.Remove(filepath.Join(o.programs, "arm64/navarchd.cdx.json")))
		}, "navarchd.cdx.json"},
		"other architecture": {func(t *testing.T, o *options) {
			header(t, filepath.Join(o.programs, "arm64/navarchd"), elf.EM_X86_64, false, 0o755)
		}, "EM_X86_64"},
		"not static": {func(t *testing.T, o *options) {
			header(t, filepath.Join(o.programs, "amd64/navarchd"), elf.EM_X86_64, true, 0o755)
		}, "not static"},
		"a script": {func(t *testing.T, o *options) {
			must(t, os.WriteFile(filepath.Join(o.programs, "amd64/navarchd"), []byte("#!/bin/sh\nexec navarchd"), 0o755))
		}, "bad magic"},
	} {
		t.Run(name, func(t *testing.T) {
			o := inputs(t, time.Now(), 0o755)
			test.prepare(t, &o)
			if err := run(o); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
			left, err := filepath.Glob(filepath.Join(filepath.Dir(o.out), ".image-*"))
			if err != nil || len(left) > 0 {
				t.Errorf("%q is left behind", left)
			}
		})
	}
}

// A program's libraries are found with their own dependencies, and are identified.
func TestLibraries(t *testing.T) {
	shell, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Skip("this machine has no /bin/sh")
	}
	found, arch, err := libraries(shell, "")
	if err != nil {
		t.Fatal(err)
	}
	if len(found) == 0 {
		t.Skip("/bin/sh is static here")
	}
	names := map[string]string{}
	for at, file := range found {
		names[filepath.Base(at)] = libcVersion(file.from)
	}
	if arch == "" || len(names) < 2 || names["libc.so.6"] == "" {
		t.Errorf("for %q: %q", arch, names)
	}
}

// Libraries of another machine are searched below its root, in the paths that its linker searches. A missing library
// prevents the image.
func TestLibrariesOfAnotherMachine(t *testing.T) {
	root := t.TempDir()
	envoy := filepath.Join(root, "envoy")
	header(t, envoy, elf.EM_AARCH64, true, 0o755)
	if _, _, err := libraries(envoy, root); err == nil || !strings.Contains(err.Error(), "has no /lib/ld.so") {
		t.Errorf("without a linker: %v", err)
	}
	for _, unpacked := range []string{"lib/ld.so", "usr/lib/ld.so"} {
		at := filepath.Join(root, unpacked)
		header(t, at, elf.EM_AARCH64, false, 0o755)
		found, arch, err := libraries(envoy, root)
		if err != nil || arch != "arm64" || len(found) != 1 || found["/lib/ld.so"].from != at {
			t.Errorf("for %q: %v, %v", arch, found, err)
		}
		must(t, os.Remove(at))
	}
	for _, unpacked := range []string{"lib/aarch64-linux-gnu", "usr/lib/aarch64-linux-gnu"} {
		header(t, filepath.Join(root, "lib/x86_64-linux-gnu/libc.so.6"), elf.EM_X86_64, false, 0o755)
		header(t, filepath.Join(root, unpacked, "libc.so.6"), elf.EM_AARCH64, false, 0o755)
		at, is, opened := find(root, "libc.so.6", elf.EM_AARCH64)
		if !is || at != "/"+unpacked+"/libc.so.6" {
			t.Fatalf("%s: found at %q", unpacked, at)
		}
		must(t, errors.Join(opened.Close(), os.RemoveAll(filepath.Join(root, unpacked))))
	}
	if at, is, _ := find(root, "libc.so.6", elf.EM_AARCH64); is {
		t.Errorf("another machine's is taken: %s", at)
	}
	for _, wrong := range [][]string{{"none"}, {envoy + "=" + root}} {
		if err := (&options{envoys: wrong}).readEnvoys(); err == nil || !strings.Contains(err.Error(), "--envoy "+wrong[0]) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

// inputs returns headers of programs, which are the only part that is read, and an Envoy that is not run.
func inputs(t *testing.T, modified time.Time, mode fs.FileMode) options {
	t.Helper()
	folder := t.TempDir()
	o := options{out: filepath.Join(folder, "image"), programs: filepath.Join(folder, "programs"), repository: "navarch", version: "v1", revision: "c0ffee", created: v1.Time{Time: time.Unix(77, 0).UTC()}}
	for _, i := range images {
		for arch, machine := range machines {
			for _, program := range i.programs {
				at := filepath.Join(o.programs, arch, program)
				header(t, at, machine, false, mode)
				must(t, os.WriteFile(at+".cdx.json", fmt.Appendf(nil, `{"metadata": {"tools": [{"name": "cyclonedx-gomod", "hashes": ["%d"]}]}}`, modified.Unix()), mode))
				must(t, os.Chtimes(at, modified, modified))
			}
		}
	}
	o.trees = map[string]tree{}
	for arch := range machines {
		o.trees[arch] = tree{"/usr/local/bin/envoy": {body: []byte("envoy"), mode: 0o755}}
	}
	return o
}

func assembled(t *testing.T, modified time.Time, mode fs.FileMode) string {
	t.Helper()
	o := inputs(t, modified, mode)
	must(t, run(o))
	return o.out
}

// header writes a program of nothing but the header of an ELF file, and one segment; a dynamic one names the linker
// /lib/ld.so.
func header(t *testing.T, at string, machine elf.Machine, dynamic bool, mode fs.FileMode) {
	t.Helper()
	h := elf.Header64{Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Phoff: 64, Phentsize: 56, Phnum: 1, Ehsize: 64}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA], h.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	segment, linker := elf.Prog64{Type: uint32(elf.PT_LOAD)}, ""
	if dynamic {
		linker = "/lib/ld.so\x00"
		segment = elf.Prog64{Type: uint32(elf.PT_INTERP), Off: 64 + 56, Filesz: uint64(len(linker))}
	}
	var out bytes.Buffer
	must(t, errors.Join(binary.Write(&out, binary.LittleEndian, h), binary.Write(&out, binary.LittleEndian, segment)))
	out.WriteString(linker)
	must(t, os.MkdirAll(filepath.Dir(at), 0o755))
	must(t, os.WriteFile(at, out.Bytes(), mode))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// contents returns the files of a folder.
func contents(t *testing.T, folder string) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, folder)] = string(body)
		return err
	}))
	return all
}

type named struct {
	name  string
	image v1.Image
}

// platforms returns the images of a layout, with the names of their indexes.
func platforms(t *testing.T, layout v1.ImageIndex) (all []named) {
	t.Helper()
	top, err := layout.IndexManifest()
	must(t, err)
	for _, d := range top.Manifests {
		index, err := layout.ImageIndex(d.Digest)
		must(t, err)
		inner, err := index.IndexManifest()
		must(t, err)
		for _, of := range inner.Manifests {
			one, err := index.Image(of.Digest)
			must(t, err)
			if config, err := one.ConfigFile(); err != nil || config.Architecture != of.Platform.Architecture {
				t.Errorf("%s: the index says %s: %v", d.Annotations["org.opencontainers.image.ref.name"], of.Platform, err)
			}
			all = append(all, named{d.Annotations["org.opencontainers.image.ref.name"], one})
		}
	}
	return all
}

// files names the programs, the lists of their parts, and the folders that are not root's. All else is checked here:
// owners, times, modes.
func files(t *testing.T, of v1.Image) string {
	t.Helper()
	var plain, owned []string
	in := tar.NewReader(mutate.Extract(of))
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		must(t, err)
		if h.ModTime.Unix() != 77 || h.Typeflag == tar.TypeReg && (h.Uid != 0 || h.Gid != 0 || h.Mode&0o022 != 0) {
			t.Errorf("%s: %s of %d, mode %o", h.Name, h.ModTime, h.Uid, h.Mode)
		}
		switch {
		case h.Uid != 0:
			owned = append(owned, fmt.Sprintf("%s:%d", strings.TrimSuffix(h.Name, "/"), h.Uid))
		case h.Typeflag == tar.TypeReg && strings.HasPrefix(h.Name, "usr/local/"):
			plain = append(plain, filepath.Base(h.Name))
		}
	}
	slices.Sort(plain)
	return strings.Join(append(plain, owned...), " ")
}
