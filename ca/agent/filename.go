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

// The names of secrets that are in files of the proxy: file-cert:CERTIFICATES~KEY and file-root:CERTIFICATES are Istio's (pkg/security, of 1.31), and
// file-root:CERTIFICATES~REVOCATIONS is Navarch's own (push/xds). In place of CERTIFICATES, "system" are the authorities that the image has.
const (
	ofCertificate = "file-cert:"
	ofAuthorities = "file-root:"
	betweenPaths  = "~"
	systemsOwn    = "system"
)

// isFileName says whether a secret is one of files.
func isFileName(name string) bool {
	return strings.HasPrefix(name, ofCertificate) || strings.HasPrefix(name, ofAuthorities)
}

// fileName is what such a name says.
type fileName struct {
	paths []string
	make  func(name string, texts [][]byte) (*secret, error) // of what the files hold; nil: the name says nothing
}

// parseFileName takes a name apart. Relative paths begin where this process runs, as those of a file that Envoy reads begin where it runs: there too.
func parseFileName(name string) (fileName, error) {
	const longest = 2*4096 + len(ofCertificate) // two paths (PATH_MAX)
	if len(name) > longest {
		return fileName{}, fmt.Errorf("the name has %d bytes, of %d at most", len(name), longest)
	}
	prefix, rest := name[:len(ofCertificate)], name[len(ofCertificate):] // both have the same length
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
	return fileName{}, fmt.Errorf("the name has %d paths; want %sCERTIFICATES~KEY, %sCERTIFICATES or %sCERTIFICATES~REVOCATIONS", len(paths), ofCertificate, ofAuthorities, ofAuthorities)
}

// systemAuthorities is where the image has its certificate authorities: the first of the places that there is, in the order of Go's crypto/x509.
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

// readFile reads a file of maxFile bytes at most. What is no file (a pipe, a device) is not waited for.
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
		return nil, nil, fmt.Errorf("%s is no file", path)
	}
	tooLarge := fmt.Errorf("%s has more than %d bytes", path, maxFile)
	if info.Size() > maxFile {
		return nil, nil, tooLarge // it is looked at each second, and read only once it is smaller
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1)) // it may grow meanwhile
	if err != nil {
		return nil, nil, err
	}
	if len(text) > maxFile {
		return nil, nil, tooLarge
	}
	return text, info, nil
}

// fileCertificate is the secret of a certificate chain and its key. Between two writes of a rotation they may not belong together.
func fileCertificate(name string, texts [][]byte) (*secret, error) {
	if _, err := tls.X509KeyPair(texts[0], texts[1]); err != nil {
		return nil, err // of the kinds of what is in the files, and never of the key
	}
	return certificateSecret(name, texts[0], texts[1]), nil
}

// fileAuthorities is the secret of the authorities of peers, with revocation lists where there is a second file. All issuers of a peer's chain need a
// list then, as where Envoy reads the file itself.
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

// blocks reads the PEM blocks of a kind. It is an error where none can be read; of several, some may be what only Envoy can read.
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
