package programs

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
)

// Etcd returns the path of an unmodified etcd of the version in go.mod. The program is built once for all test
// binaries, and again when go.sum changes. Errors: there is no go.mod above the working directory, a file cannot be
// read or written, or the build fails. Later calls in a process return the result of the first call.
var Etcd = sync.OnceValues(func() (string, error) {
	top, err := root()
	if err != nil {
		return "", err
	}
	sums, err := os.ReadFile(filepath.Join(top, "go.sum"))
	if err != nil {
		return "", fmt.Errorf("programs for tests: %w", err)
	}
	hash := sha256.Sum256(sums)
	dir, unlock, err := folder(fmt.Sprintf("etcd-%x", hash[:8]))
	if err != nil {
		return "", err
	}
	defer unlock()
	path := filepath.Join(dir, "etcd")
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return path, err
	}
	part := path + ".part" // a different name, so that an unfinished build is not used
	if out, err := run(top, "go", "build", "-tags=grpcnotrace", LinkFlags, "-o", part, "go.etcd.io/etcd/server/v3"); err != nil {
		return "", fmt.Errorf("programs for tests: %w\n%s", err, out)
	}
	return path, os.Rename(part, path)
})
