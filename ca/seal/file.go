package seal

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/tink-crypto/tink-go/v2/aead/subtle"

	"navarch.io/navarch/store/durable"
)

// File is a Provider that reads its key encryption key from a file of 32 bytes. Use it for development, or if a secret
// store provides the key file. Safe for concurrent use.
type File struct {
	path  string
	older []localKey
	first First

	mu  sync.Mutex // guards key
	key localKey   // zero until the file has been read
}

// First decides whether a File may create a missing key file. It returns nil if nothing was ever sealed, so that a new
// key makes no blob unreadable. An error forbids a new key. The error names a value that was sealed, or says why
// nothing is known about sealed values. Concurrent calls of Wrap call First concurrently.
type First func(context.Context) error

// NewFile returns a File that wraps with the key in the file at path, and also unwraps with the keys in the older
// files. If the file at path is missing, NewFile creates it with a random key and mode 0600. It creates missing folders
// with mode 0700. If several processes create the file at once, all use the key of the first process.
//
// NewFile fails if a file has a size other than 32 bytes, if an older file is missing, or if the file system reports an
// error. It also fails if the permissions of a file exceed 0700 (file of this process's user) or 0640 (file of another
// user).
//
// A rotation of the key has three steps. In the first step, every replica gets the new file as one of its older files,
// so that it can unwrap with the new key. When all replicas have the new file, pass its name as path, and the previous
// file as an older file. Remove the previous file when no blob needs its key any more. During the rotation, every
// replica can open every blob. Report.KEKs of package keyring lists the keys that blobs need.
func NewFile(path string, older ...string) (*File, error) {
	f, err := findFile(path, older, nil)
	if err == nil && f.key.id == "" {
		_, err = f.create()
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// findFile is like NewFile, but creates no file. An operation that needs the key of a missing file reads the file
// again, and fails with ErrUnavailable if the file is still missing. Wrap calls the given First, and creates the file
// if the result is nil. Without a First, the file is never created.
func findFile(path string, older []string, first First) (*File, error) {
	f := &File{path: path, first: first}
	key, err := keyOf(path)
	if errors.Is(err, fs.ErrNotExist) {
		key, err = localKey{}, nil
	}
	f.key = key
	for _, old := range older {
		if err == nil {
			key, err = keyOf(old)
			f.older = append(f.older, key)
		}
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

func keyOf(path string) (localKey, error) {
	raw, err := readKeyFile(path)
	if err != nil {
		return localKey{}, fmt.Errorf("key encryption key: %w", err)
	}
	key, err := newLocalKey(raw)
	if err != nil {
		return localKey{}, fmt.Errorf("key encryption key %s: %w", path, err)
	}
	return key, nil
}

func readKeyFile(path string) (Secret, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if mode := info.Mode().Perm(); mode&^mayHave(info) != 0 {
		return nil, fmt.Errorf("%s has mode %04o, and other users can read or write it: want 0600, or 0440 in a Secret volume with fsGroup",
			path, mode)
	}
	if info.Size() != keyBytes {
		return nil, fmt.Errorf("%s has %d bytes, want %d", path, info.Size(), keyBytes)
	}
	return os.ReadFile(path)
}

// mayHave returns the permissions that a key file may have. A file of this process's user may grant permissions to its
// owner only. The group may also read a file of another user, because the files of a Secret volume belong to root and
// to the Pod's fsGroup.
func mayHave(info fs.FileInfo) fs.FileMode {
	if stat, is := info.Sys().(*syscall.Stat_t); is && int(stat.Uid) != os.Geteuid() {
		return 0o640
	}
	return 0o700
}

// makeKeyFile creates a key file with a random key. It returns nil if the file exists already. A created file is on
// disk when makeKeyFile returns, and survives a crash of the machine.
func makeKeyFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	key := make(Secret, keyBytes)
	_, _ = rand.Read(key) // never fails
	err := durable.Create(path, 0o600, func(w io.Writer) error {
		_, err := w.Write(key)
		return err
	})
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// Name implements Provider. It returns "file".
func (*File) Name() string { return "file" }

// current returns the key in memory. If no read of the file has succeeded yet, current reads the file first. Errors
// match ErrUnavailable, and fs.ErrNotExist if the file is missing.
func (f *File) current() (localKey, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.key.id != "" {
		return f.key, nil
	}
	key, err := keyOf(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return localKey{}, fmt.Errorf("%w: the file %s is missing: %w", ErrUnavailable, f.path, fs.ErrNotExist)
	case err != nil:
		return localKey{}, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	f.key = key
	return key, nil
}

// create creates the file, unless another process has created it, and returns the file's key.
func (f *File) create() (localKey, error) {
	if err := makeKeyFile(f.path); err != nil {
		return localKey{}, fmt.Errorf("key encryption key: %w", err)
	}
	return f.current()
}

// sealing returns the key for Wrap. It creates a missing file if f.first is set and its result is nil.
func (f *File) sealing(ctx context.Context) (localKey, error) {
	key, err := f.current()
	if f.first == nil || !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if not := f.first(ctx); not != nil {
		return localKey{}, fmt.Errorf("%w; no new key is created: %w", err, not)
	}
	if key, err = f.create(); err != nil && !errors.Is(err, ErrUnavailable) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return key, err
}

// putBack reads the file again, because an operator may have restored the right file. If the file's key has the given
// id, putBack stores the key in f, and returns it. putBack returns false if the file has another key or cannot be read.
func (f *File) putBack(id string) (localKey, bool) {
	key, err := keyOf(f.path)
	if err != nil || key.id != id {
		return localKey{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.key = key
	return key, true
}

// Wrap implements Provider. It uses the key in memory, and reads the file only if no read has succeeded so far. If the
// file is missing, and NewProvider got a First, Wrap calls this First, and creates the file if the result is nil.
// ErrUnavailable: there is no key in memory, and the file is missing, invalid or unreadable, or cannot be created. Any
// other error means that the encryption failed.
func (f *File) Wrap(ctx context.Context, key Secret) (Wrapped, error) {
	own, err := f.sealing(ctx)
	if err != nil {
		return Wrapped{}, err
	}
	data, err := own.wrap(key)
	return Wrapped{KeyID: own.id, Data: data}, err
}

// Unwrap implements Provider. If no known key has the id w.KeyID, Unwrap reads the file again. If the file now has the
// key with this id, Unwrap and later calls of Wrap use this key. ErrUnavailable: no key in memory or in the file has
// this id. ErrTampered: w.Data does not decrypt.
func (f *File) Unwrap(_ context.Context, w Wrapped) (Secret, error) {
	own, missing := f.current()
	for _, key := range append([]localKey{own}, f.older...) {
		if key.id != "" && w.KeyID == key.id {
			return key.unwrap(w.Data)
		}
	}
	if missing != nil {
		return nil, fmt.Errorf("the blob was sealed under key %q: %w", w.KeyID, missing)
	}
	if key, ok := f.putBack(w.KeyID); ok {
		return key.unwrap(w.Data)
	}
	return nil, fmt.Errorf("%w: the blob was sealed under key %q, the file has %q", ErrUnavailable, w.KeyID, own.id)
}

// Newest implements Provider. The returned function reports whether its argument is wrapped by f's key. Each call of
// that function uses the key that f has then. ErrUnavailable: there is no key in memory, and the file is missing,
// invalid or unreadable.
func (f *File) Newest(context.Context) (func(Wrapped) bool, error) {
	if _, err := f.current(); err != nil {
		return nil, err
	}
	return func(w Wrapped) bool {
		own, err := f.current()
		return err == nil && w.KeyID == own.id
	}, nil
}

// localKey is a key encryption key in memory. Its id is a digest, which does not reveal the key.
type localKey struct {
	id   string
	aead *subtle.AESGCM
}

func newLocalKey(key Secret) (localKey, error) {
	aead, err := subtle.NewAESGCM(key)
	if err != nil {
		return localKey{}, err
	}
	sum := sha256.Sum256(append([]byte("navarch.io/kek-id\x00"), key...))
	return localKey{id: hex.EncodeToString(sum[:8]), aead: aead}, nil
}

// Format implements fmt.Formatter. It prints [sealed].
func (localKey) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("[sealed]")) }

var wrapContext = []byte("navarch.io/wrapped-key/1")

func (k localKey) wrap(key Secret) ([]byte, error) { return k.aead.Encrypt(key, wrapContext) }

func (k localKey) unwrap(data []byte) (Secret, error) {
	plain, err := k.aead.Decrypt(data, wrapContext)
	if err != nil {
		return nil, fmt.Errorf("data key: %w", ErrTampered)
	}
	return plain, nil
}
