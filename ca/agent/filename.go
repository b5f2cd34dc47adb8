package agent

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
)

// A file secret is an SDS secret whose name contains the paths of the PEM files to serve. The constants below are parts
// of such names. Istio defines file-cert:CERTIFICATES~KEY and file-root:CERTIFICATES (pkg/security, 1.31). Navarch adds
// file-root:CERTIFICATES~REVOCATIONS. If an object outside of the proxy's namespace requires the secret, Navarch
// appends ~~ and the object's namespace (the owner) to the name. In names with file-root:, "system" in place of
// CERTIFICATES means the CA certificates of the container image.
const (
	ofCertificate = "file-cert:"
	ofAuthorities = "file-root:"
	betweenPaths  = "~"
	beforeOwner   = "~~"
	systemsOwn    = "system"
)

// isFileName reports whether a name has the prefix of a file secret.
func isFileName(name string) bool {
	return strings.HasPrefix(name, ofCertificate) || strings.HasPrefix(name, ofAuthorities)
}

// fileName is a parsed name of a file secret.
type fileName struct {
	paths []string
	make  func(name string, texts [][]byte) (*secret, error) // makes the secret from the files' contents; nil: the name is invalid
}

// splitOwner splits the name of a file secret into the name without its owner, and the owner. The owner is the
// namespace of the object that requires the secret. It is empty for the proxy's own namespace.
func splitOwner(name string) (rest, owner string) {
	if at := strings.LastIndex(name, beforeOwner); at >= 0 {
		return name[:at], name[at+len(beforeOwner):]
	}
	return name, ""
}

// parseFileName parses a name for which isFileName is true. Relative paths are relative to this process's working
// directory, which is also Envoy's.
func parseFileName(name string) (fileName, error) {
	const longest = 2*4096 + len(ofCertificate) // two paths (PATH_MAX)
	name, _ = splitOwner(name)
	if len(name) > longest {
		return fileName{}, fmt.Errorf("the name has %d bytes, of %d at most", len(name), longest)
	}
	prefix, rest := name[:len(ofCertificate)], name[len(ofCertificate):] // both prefixes have the same length
	paths := strings.Split(rest, betweenPaths)
	for _, p := range paths {
		if p == "" {
			return fileName{}, errors.New("a path in the name is empty")
		}
	}
	switch {
	case prefix == ofCertificate && len(paths) == 2:
		return fileName{paths, fileCertificate}, nil
	case prefix == ofAuthorities && len(paths) <= 2:
		if paths[0] == systemsOwn {
			paths[0] = systemAuthorities()
		}
		return fileName{paths, fileAuthorities}, nil
	}
	return fileName{}, fmt.Errorf("the name has %d paths; want %sCERTIFICATES~KEY, %sCERTIFICATES or %sCERTIFICATES~REVOCATIONS",
		len(paths), ofCertificate, ofAuthorities, ofAuthorities)
}

// systemAuthorities returns the path of the image's CA certificates. The result is the first existing path of a list
// that has the order of Go's crypto/x509. If no path exists, the result is the first path of the list.
func systemAuthorities() string {
	places := []string{
		"/etc/ssl/certs/ca-certificates.crt",                // Debian, Ubuntu, Alpine, distroless
		"/etc/pki/tls/certs/ca-bundle.crt",                  // Fedora, RHEL
		"/etc/ssl/ca-bundle.pem",                            // OpenSUSE
		"/etc/pki/tls/cacert.pem",                           // OpenELEC
		"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // CentOS, RHEL 7
		"/etc/ssl/cert.pem",                                 // Alpine
	}
	for _, p := range places {
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	return places[0]
}

// readFile reads a regular file of at most maxFile bytes. For a larger file, a pipe or a device it returns an error
// without blocking.
func readFile(path string) ([]byte, fs.FileInfo, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s is not a regular file", path)
	}
	tooLarge := fmt.Errorf("%s has more than %d bytes", path, maxFile)
	if info.Size() > maxFile {
		return nil, nil, tooLarge // files.follow tries again in the next period
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1)) // the file may grow meanwhile
	if err != nil {
		return nil, nil, err
	}
	if len(text) > maxFile {
		return nil, nil, tooLarge
	}
	return text, info, nil
}

// fileCertificate makes the secret of a certificate chain and its key. It fails if chain and key do not match, for
// example while a rotation has replaced only one of the two files.
func fileCertificate(name string, texts [][]byte) (*secret, error) {
	if _, err := tls.X509KeyPair(texts[0], texts[1]); err != nil {
		return nil, err // the error never shows the key
	}
	return certificateSecret(name, texts[0], texts[1]), nil
}

// fileAuthorities makes the secret of the CA certificates that verify peers. A second file is optional, and contains
// revocation lists. With a second file, Envoy requires a revocation list of each issuer in a peer's chain.
func fileAuthorities(name string, texts [][]byte) (*secret, error) {
	if _, err := blocks(texts[0], "CERTIFICATE", x509.ParseCertificate); err != nil {
		return nil, err
	}
	v := &tlsv3.CertificateValidationContext{TrustedCa: inline(texts[0])}
	if len(texts) > 1 {
		if _, err := blocks(texts[1], "X509 CRL", x509.ParseRevocationList); err != nil {
			return nil, err
		}
		v.Crl = inline(texts[1])
	}
	return newSecret(&tlsv3.Secret{Name: name, Type: &tlsv3.Secret_ValidationContext{ValidationContext: v}}, nil, texts...), nil
}

// blocks parses the PEM blocks of one kind, and ignores other kinds. It skips blocks that do not parse, because Envoy
// may understand blocks that Go does not. It fails if it can parse no block of the kind.
func blocks[T any](text []byte, kind string, parse func([]byte) (T, error)) (out []T, err error) {
	for rest := text; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != kind {
			continue
		}
		one, failed := parse(block.Bytes)
		if failed != nil {
			err = failed
			continue
		}
		out = append(out, one)
	}
	if len(out) > 0 {
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("no PEM block %q in the file", kind)
}
