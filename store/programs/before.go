package programs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ErrNoHistory means that git cannot export the previous version from the history of the repository.
var ErrNoHistory = errors.New("no history")

// Before returns the folder with navarchd and navarch-agent of the previous version, the commit in the file
// deploy/upgrade-from. The two programs are built once, from the history of the repository. They report this commit as
// their version. The error wraps ErrNoHistory if git cannot export the commit, as in a shallow clone. Other errors:
// there is no go.mod above the working directory, deploy/upgrade-from names no commit, the build fails, or a file
// cannot be read or written.
func Before() (dir string, err error) {
	top, err := root()
	if err != nil {
		return "", err
	}
	commit, err := before(filepath.Join(top, "deploy", "upgrade-from"))
	if err != nil {
		return "", err
	}
	dir, unlock, err := folder(commit)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(filepath.Join(dir, "done")); err == nil {
		return dir, nil
	}
	source := filepath.Join(dir, "source")
	if err := errors.Join(os.RemoveAll(source), os.MkdirAll(source, 0o755)); err != nil {
		return "", err
	}
	defer os.RemoveAll(source)
	archive := filepath.Join(dir, "source.tar")
	defer os.Remove(archive)
	if out, err := run(top, "git", "archive", "--output", archive, commit); err != nil {
		return "", fmt.Errorf("%w: %s", ErrNoHistory, out)
	}
	if out, err := run(source, "tar", "-xf", archive); err != nil {
		return "", fmt.Errorf("programs for tests: %w: %s", err, out)
	}
	// The flags are those of all other builds, so modules that both versions use are compiled only once.
	out, err := run(source, "go", "build", "-tags=grpcnotrace", LinkFlags+" -X navarch.io/navarch/store/obs.Version="+commit, "-o", dir+"/",
		"./cmd/navarchd", "./cmd/navarch-agent")
	if err != nil {
		return "", fmt.Errorf("programs for tests: version %s: %w\n%s", commit, err, out)
	}
	return dir, os.WriteFile(filepath.Join(dir, "done"), nil, 0o644)
}

// before returns the commit in a file: the first line that is neither empty nor a comment.
func before(file string) (commit string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("programs for tests: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			return line, nil
		}
	}
	return "", fmt.Errorf("programs for tests: %s names no commit", file)
}

// run runs a program in a folder, with the environment of `make build`, and returns standard output and standard error
// in one text.
func run(dir, program string, args ...string) (string, error) {
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), asMade...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
