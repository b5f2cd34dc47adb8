package seal

import (
	"fmt"
	"os"
	"strings"
)

// NewProvider returns the provider that a flag names: file:PATH (32 bytes), passphrase-file:PATH, or kms:SOCKET (a
// Kubernetes KMS v2 plugin). Files of older keys or passphrases follow the newest, after commas: see NewFile. A missing
// key file is not an error. It is created at the first Seal if first permits; until then operations fail with
// ErrUnavailable. nil: it is never created.
func NewProvider(spec string, first First) (Provider, error) {
	kind, where, ok := strings.Cut(spec, ":")
	if !ok || where == "" {
		kind = ""
	}
	switch kind {
	case "file":
		paths := strings.Split(where, ",")
		return findFile(paths[0], paths[1:], first)
	case "passphrase-file":
		var phrases []Secret
		for _, path := range strings.Split(where, ",") {
			raw, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			phrases = append(phrases, Secret(strings.TrimSpace(string(raw))))
		}
		return NewPassphrase(phrases[0], phrases[1:]...)
	case "kms":
		return NewKMS(KMSConfig{Socket: where})
	}
	return nil, fmt.Errorf("key encryption key %q: want file:PATH[,OLDER...], passphrase-file:PATH[,OLDER...] or kms:SOCKET", spec)
}
