package attest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"navarch.io/navarch/store/durable"
)

// LocalIssuer is the name (claim iss) of the issuer that Local and OpenLocal return. The issuer's key is a file in
// navarchd's data directory.
const LocalIssuer = "navarch-local"

// keyFile is the file of the issuer's key in the data directory.
const keyFile = "token-issuer.key"

const maxKeyFile = 64 << 10 // largest accepted key file, in bytes

// Local returns the token issuer LocalIssuer, whose key is a file in the data directory dir. A missing file is created
// with mode 0600, a missing directory with 0700. If several processes create the file at once, all use the first key.
// Errors: the file cannot be read or written, or does not have one P-256 key in PKCS #8 as PEM.
func Local(dir string) (*Issuer, error) {
	path := filepath.Join(dir, keyFile)
	text, err := durable.Read(path, maxKeyFile)
	if errors.Is(err, os.ErrNotExist) {
		if err = makeKey(path); err == nil {
			text, err = durable.Read(path, maxKeyFile)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("key of the token issuer: %w", err)
	}
	return parseKey(path, text)
}

// OpenLocal does the same as Local for an existing key file. It writes nothing. Errors: the directory or the key file
// does not exist, or the file cannot be read or does not have one P-256 key in PKCS #8 as PEM.
func OpenLocal(dir string) (*Issuer, error) {
	path := filepath.Join(dir, keyFile)
	text, err := durable.Read(path, maxKeyFile)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, fmt.Errorf("%s is no data directory of navarchd with role ca: there is no %s in it (navarchd makes it when it starts)",
			dir, keyFile)
	}
	if err != nil {
		return nil, fmt.Errorf("key of the token issuer: %w", err)
	}
	return parseKey(path, text)
}

func parseKey(path string, text []byte) (*Issuer, error) {
	block, rest := pem.Decode(text)
	if block == nil || len(rest) > 0 {
		return nil, fmt.Errorf("key of the token issuer: %s is not one PEM block", path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("key of the token issuer: %s: not PKCS #8", path) // the library's error might show bytes
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("key of the token issuer: %s: a %T does not sign", path, parsed)
	}
	return NewIssuer(LocalIssuer, key, nil)
}

// makeKey creates the key file atomically. An existing file is not replaced.
func makeKey(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	err = durable.Create(path, 0o600, func(w io.Writer) error { return pem.Encode(w, &pem.Block{Type: "PRIVATE KEY", Bytes: der}) })
	if errors.Is(err, fs.ErrExist) {
		return nil // another process was first
	}
	return err
}
