package seal

import (
	"fmt"
	"os"
	"strings"
)

// NewProvider makes the provider that a flag names: file:PATH (32 bytes, made where it is missing), passphrase-file:PATH,
// or kms:SOCKET (a Kubernetes KMS v2 plugin).
func NewProvider(spec string) (Provider, error) {
	kind, where, ok := strings.Cut(spec, ":")
	if !ok || where == "" {
		kind = ""
	}
	switch kind {
	case "file":
		return NewFile(where)
	case "passphrase-file":
		raw, err := os.ReadFile(where)
		if err != nil {
			return nil, err
		}
		return NewPassphrase(Secret(strings.TrimSpace(string(raw))))
	case "kms":
		return NewKMS(KMSConfig{Socket: where})
	}
	return nil, fmt.Errorf("key encryption key %q: want file:PATH, passphrase-file:PATH or kms:SOCKET", spec)
}
