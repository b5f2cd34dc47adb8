// Package programs builds the project's programs, and an unmodified etcd, for tests. The programs are built from this
// tree into out/programs. All test binaries of a run share the programs, because the go command skips programs that are
// up to date.
package programs

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// failer is the part of a test that For and Raced need.
type failer interface {
	Helper()
	Fatal(args ...any)
}

// For returns the path of a program: navarchd, navarchctl, navarch-agent, navarch-load, or app, the demo's application.
// All programs are built on the first call, as by `make build`, but without symbols. The test ends if the build fails.
func For(t failer, name string) string {
	t.Helper()
	return path(t, plain, name)
}

// Raced returns the path of navarchd, built with the race detector, which writes DATA RACE to standard error. The
// test ends if the build fails.
func Raced(t failer) string {
	t.Helper()
	return path(t, raced, "navarchd")
}

// path returns the path of a program. Parameter of: a function that returns the folder of the program. The test ends if
// the function fails.
func path(t failer, of func() (string, error), name string) string {
	t.Helper()
	dir, err := of()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// LinkFlags is the flag of the go command that omits symbols from programs.
const LinkFlags = "-ldflags=-s -w"

// asMade is the environment of `make build`.
var asMade = []string{"CGO_ENABLED=0"}

var (
	plain = sync.OnceValues(func() (string, error) {
		if _, experiment := os.LookupEnv("NAVARCH_EXPERIMENT_OFF"); experiment { // set by `make experiment`, also if empty
			return build("experiment", asMade, "-tags=grpcnotrace,experiment", module+"cmd/...", module+"deploy/demo/app")
		}
		return build("plain", asMade, "-tags=grpcnotrace", module+"cmd/...", module+"deploy/demo/app")
	})
	raced = sync.OnceValues(func() (string, error) {
		return build("race", []string{"CGO_ENABLED=1"}, "-race", module+"cmd/navarchd")
	})
)

// module is the prefix of the packages in this tree.
const module = "navarch.io/navarch/"

// Edit is a replacement in a file. By replaces the first occurrence of Text. File is relative to the top of the tree.
// With an empty Text, By is inserted at the start of the file. In this case the file may be missing.
type Edit struct{ File, Text, By string }

// Changed returns the path of a navarchd that is built from edited files, to simulate another version. name is the
// version that this navarchd reports, and the name of the build's folder. The test ends if a file lacks the text to
// replace or cannot be read or written, or if the build fails.
func Changed(t failer, name string, edits ...Edit) string {
	t.Helper()
	return ChangedProgram(t, "navarchd", name, edits...)
}

// ChangedProgram does for any program in the folder cmd what Changed does for navarchd. Different programs need
// different values of name.
func ChangedProgram(t failer, program, name string, edits ...Edit) string {
	t.Helper()
	dir, err := changed(program, name, edits)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, program)
}

// changed builds a program from edited files into the folder out/programs/<name>, and returns the folder.
func changed(program, name string, edits []Edit) (dir string, err error) {
	dir, unlock, err := folder(name)
	if err != nil {
		return "", err
	}
	defer unlock()
	overlay, err := Overlay(dir, edits)
	if err != nil {
		return "", err
	}
	return dir, compile(dir, asMade, "-tags=grpcnotrace", LinkFlags+" -X navarch.io/navarch/store/obs.Version="+name, "-overlay="+overlay,
		module+"cmd/"+program)
}

// Overlay writes the edited files into the folder dir, which must exist. It returns the path of the file for the flag
// -overlay of the go command. Several edits of one file apply in their order. An edit with an empty Text inserts By at
// the start of its file, which may be missing. Errors: there is no go.mod above the working directory, a file lacks the
// text to replace, or a file cannot be read or written.
func Overlay(dir string, edits []Edit) (overlay string, err error) {
	root, err := root()
	if err != nil {
		return "", err
	}
	texts, replace := map[string]string{}, map[string]string{} // by path: the edited text, and the file that contains it
	for i, e := range edits {
		file := filepath.Join(root, e.File)
		old, edited := texts[file]
		if !edited {
			read, err := os.ReadFile(file)
			if err != nil && (e.Text != "" || !errors.Is(err, os.ErrNotExist)) {
				return "", fmt.Errorf("programs for tests: %w", err)
			}
			// .txt keeps the file out of Go's packages.
			old, replace[file] = string(read), filepath.Join(dir, fmt.Sprintf("%d-%s.txt", i, filepath.Base(file)))
		}
		if !strings.Contains(old, e.Text) {
			return "", fmt.Errorf("programs for tests: %s has no %q any more: change another detail", file, e.Text)
		}
		texts[file] = strings.Replace(old, e.Text, e.By, 1)
	}
	for file, text := range texts {
		if err := os.WriteFile(replace[file], []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("programs for tests: %w", err)
		}
	}
	overlay = filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err = errors.Join(err, os.WriteFile(overlay, list, 0o600)); err != nil {
		return "", fmt.Errorf("programs for tests: %w", err)
	}
	return overlay, nil
}

// build builds the programs of one kind into out/programs/<kind>.
func build(kind string, env []string, args ...string) (dir string, err error) {
	dir, unlock, err := folder(kind)
	if err != nil {
		return "", err
	}
	defer unlock()
	return dir, compile(dir, env, append([]string{LinkFlags}, args...)...)
}

// compile builds programs into a folder.
func compile(dir string, env []string, args ...string) error {
	if err := depend(); err != nil {
		return err
	}
	cmd := exec.Command("go", append([]string{"build", "-o", dir + "/"}, args...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("programs for tests: %w\n%s", err, out)
	}
	return nil
}

// depend makes the cached result of a test depend on every file of the tree. The go command reuses a result if the
// test's packages and the files that the test opened are unchanged. It does not know the programs that the test builds.
var depend = sync.OnceValue(func() error {
	top, err := root()
	if err != nil {
		return err
	}
	err = filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && path != top && (strings.HasPrefix(d.Name(), ".") || d.Name() == "out" || d.Name() == "bin") {
			return filepath.SkipDir // the folder contains no source
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("programs for tests: %w", err)
	}
	return nil
})

// folder creates out/programs/<kind> if necessary, and locks it for this process until unlock is called. Concurrent
// test binaries wait for each other.
func folder(kind string) (dir string, unlock func(), err error) {
	top, err := root()
	if err != nil {
		return "", nil, err
	}
	dir = filepath.Join(top, "out", "programs", kind)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", nil, fmt.Errorf("programs for tests: %w", err)
	}
	lock, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", nil, fmt.Errorf("programs for tests: %w", err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", nil, errors.Join(fmt.Errorf("programs for tests: lock %s: %w", lock.Name(), err), lock.Close())
	}
	return dir, func() { lock.Close() }, nil
}

// root returns the top of the tree, above the folder of the test's package.
func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("programs for tests: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("programs for tests: no go.mod above the working directory")
		}
		dir = up
	}
}
