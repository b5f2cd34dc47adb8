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

// LocalIssuer is the name (claim iss) of the issuer of the embedded default.
const LocalIssuer = "navarch-local"

// keyFile is the file of the issuer's key in the data directory.
const keyFile = "token-issuer.key"

const maxKeyFile = 64 << 10 // bytes that are read of it

// Local is the token issuer of the embedded default: its key is in the data directory, readable to its owner only, and is
// made where there is none; of processes that do so at the same time one wins, and all use its key.
// An error: the file cannot be read or written, or has no such key.
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

// OpenLocal is Local for a data directory that navarchd has made: nothing is written. The error says where there is no such
// directory, or no key in it.
func OpenLocal(dir string) (*Issuer, error) {
	path := filepath.Join(dir, keyFile)
	text, err := durable.Read(path, maxKeyFile)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, fmt.Errorf("%s is no data directory of navarchd with role ca: there is no %s in it (navarchd makes it when it starts)", dir, keyFile)
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
		return nil, fmt.Errorf("key of the token issuer: %s: not PKCS #8", path) // the error might show bytes
	}
	key, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("key of the token issuer: %s: a %T does not sign", path, parsed)
	}
	return NewIssuer(LocalIssuer, key, nil)
}

// makeKey writes a new key under another name and links it to its own: a link does not replace what is there.
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
		return nil // another was first
	}
	return err
}
