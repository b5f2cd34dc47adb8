package model

import (
	"encoding/hex"
	"strings"
)

// UID returns the form in which records keep the uid of a Kubernetes object. It is 16 bytes for a UUID in its usual
// form, which all API servers use, and the text itself otherwise.
func UID(text string) []byte {
	if len(text) == 36 && text[8] == '-' && text[13] == '-' && text[18] == '-' && text[23] == '-' {
		if raw, err := hex.DecodeString(strings.ReplaceAll(text, "-", "")); err == nil && len(raw) == 16 && strings.ToLower(text) == text {
			return raw
		}
	}
	return []byte(text)
}
