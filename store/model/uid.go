package model

import (
	"encoding/hex"
	"strings"
)

// UID returns the form in which records keep the uid of a Kubernetes object. For a UUID in lower case with dashes,
// which all API servers use, the form is the 16 bytes of the UUID. For any other text, the form is the bytes of the
// text. The caller owns the result.
func UID(text string) []byte {
	if len(text) == 36 && text[8] == '-' && text[13] == '-' && text[18] == '-' && text[23] == '-' {
		if raw, err := hex.DecodeString(strings.ReplaceAll(text, "-", "")); err == nil && len(raw) == 16 && strings.ToLower(text) == text {
			return raw
		}
	}
	return []byte(text)
}
