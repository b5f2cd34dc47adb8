// Package etcdflags defines the flags for the connection to an external etcd, for all commands that have them.
//
// Owns: nothing.
// Reads: the files that the flags name.
// Never: connects.
package etcdflags

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"navarch.io/navarch/store/kv"
)

// Flags are the addresses and credentials of an etcd. The zero value means the embedded etcd. CA, Cert, Key and
// PasswordFile are paths of files, or empty.
type Flags struct {
	Endpoints    []string // empty: the embedded etcd
	CA           string   // certificates that verify etcd's certificate; empty: the system's roots
	Cert, Key    string   // client certificate and its key; Key is ignored without Cert
	User         string
	PasswordFile string
}

// Bind defines the flags --etcd-... in f, and empties the fields of e. Parsing f then sets the fields.
func (e *Flags) Bind(f *pflag.FlagSet) {
	f.StringSliceVar(&e.Endpoints, "etcd-endpoints", nil, "Addresses of an etcd to use instead of the embedded one.")
	f.StringVar(&e.CA, "etcd-ca", "", "File of certificates that etcd's certificate is verified against.")
	f.StringVar(&e.Cert, "etcd-cert", "", "File of the client certificate for etcd.")
	f.StringVar(&e.Key, "etcd-key", "", "File of the client certificate's key.")
	f.StringVar(&e.User, "etcd-user", "", "Name of the etcd user.")
	f.StringVar(&e.PasswordFile, "etcd-password-file", "", "File that holds the etcd user's password.")
}

// Check returns an error if only one of Cert and Key, or only one of User and PasswordFile, is set. The error names the
// flags.
func (e *Flags) Check() error {
	var problems []error
	if (e.Cert == "") != (e.Key == "") {
		problems = append(problems, errors.New("--etcd-cert and --etcd-key go together"))
	}
	if (e.User == "") != (e.PasswordFile == "") {
		problems = append(problems, errors.New("--etcd-user and --etcd-password-file go together"))
	}
	return errors.Join(problems...)
}

// Config reads the files and returns the configuration for kv.Open. It does not set Mesh, Revision and Logger. TLS is
// nil if CA and Cert are empty. White space around the password is removed. The error names the flag whose file cannot
// be read or parsed. Config does not call Check.
func (e *Flags) Config() (kv.Config, error) {
	conf, err := e.tls()
	if err != nil {
		return kv.Config{}, err
	}
	password := ""
	if e.PasswordFile != "" {
		raw, err := os.ReadFile(e.PasswordFile)
		if err != nil {
			return kv.Config{}, fmt.Errorf("--etcd-password-file: %w", err)
		}
		password = strings.TrimSpace(string(raw))
	}
	return kv.Config{Endpoints: e.Endpoints, TLS: conf, Username: e.User, Password: password}, nil
}

// tls returns the TLS configuration. It is nil if no flag requests TLS.
func (e *Flags) tls() (*tls.Config, error) {
	if e.CA == "" && e.Cert == "" {
		return nil, nil
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if e.CA != "" {
		pool, err := Certificates("--etcd-ca", e.CA)
		if err != nil {
			return nil, err
		}
		conf.RootCAs = pool
	}
	if e.Cert != "" {
		pair, err := tls.LoadX509KeyPair(e.Cert, e.Key)
		if err != nil {
			return nil, fmt.Errorf("--etcd-cert, --etcd-key: %w", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}

// Certificates reads a file of PEM certificates, and skips other content of the file. It fails if the file cannot be
// read or contains no valid certificate. The error begins with flag, the name of the command-line flag for the file.
func Certificates(flag, file string) (*x509.CertPool, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(raw) {
		return nil, fmt.Errorf("%s: %s holds no PEM certificate", flag, file)
	}
	return pool, nil
}
