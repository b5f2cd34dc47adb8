package seal

import (
	"fmt"
	"os"
	"strings"
)

// NewProvider returns the provider that spec, the value of a flag, describes. spec is file:PATH (a File of 32 bytes),
// passphrase-file:PATH (a Passphrase), or kms:SOCKET (a KMS: a Kubernetes KMS v2 plugin). Paths of older keys or
// passphrases may follow the first path after commas (NewFile). White space around a passphrase is ignored.
//
// A missing key file is not an error. The first call of Wrap creates the file if the given First returns nil. With a
// nil First, the file is never created. Until the file exists, operations that need its key fail with ErrUnavailable.
// Errors: an invalid spec, an unreadable or invalid file, and a missing file of a passphrase or an older key.
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
