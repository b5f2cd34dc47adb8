package seal

import (
	"fmt"
	"os"
	"strings"
)

// NewProvider returns the provider that spec describes. The argument spec is the value of a flag, in one of three
// forms: file:PATH (a File), passphrase-file:PATH (a Passphrase), or kms:SOCKET (a KMS). A key file has 32 bytes. After
// the first path, paths of older keys or passphrases may follow, separated by commas. White space around a passphrase
// is ignored.
//
// A missing key file is not an error. While it is missing, each Wrap calls the function permit, which decides whether
// Wrap may create the file. If permit is nil, the file is never created. Until the file exists, operations that need
// its key fail with ErrUnavailable. The other kinds of provider ignore permit.
//
// NewProvider fails if spec is invalid, or if a file is invalid or unreadable. It also fails if the file of a
// passphrase or of an older key is missing. If NewProvider fails, do not use the returned Provider, which may be
// non-nil.
func NewProvider(spec string, permit First) (Provider, error) {
	kind, where, ok := strings.Cut(spec, ":")
	if !ok || where == "" {
		kind = ""
	}
	switch kind {
	case "file":
		paths := strings.Split(where, ",")
		return findFile(paths[0], paths[1:], permit)
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
