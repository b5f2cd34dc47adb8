package model

import (
	"encoding/hex"
	"strings"
)

// UID is what records keep of the uid of a Kubernetes object: 16 bytes of a UUID in its usual form, which all API servers give out, and
// the text itself of anything else.
func UID(text string) []byte {
	if len(text) == 36 && text[8] == '-' && text[13] == '-' && text[18] == '-' && text[23] == '-' {
		if raw, err := hex.DecodeString(strings.ReplaceAll(text, "-", "")); err == nil && len(raw) == 16 && strings.ToLower(text) == text {
			return raw
		}
	}
	return []byte(text)
}
