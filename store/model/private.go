package model

import "fmt"

// PrivateKey is a decrypted private key in PEM, or the decrypted credentials of image registries (store/pullsecret). It
// exists in memory only, and records do not contain it. It prints as [sealed].
type PrivateKey []byte

const sealed = "[sealed]"

// Format implements fmt.Formatter. All verbs print [sealed].
func (PrivateKey) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(sealed)) }

// String implements fmt.Stringer. It returns [sealed].
func (PrivateKey) String() string { return sealed }

// MarshalText implements encoding.TextMarshaler, which JSON uses too. It returns [sealed] and no error.
func (PrivateKey) MarshalText() ([]byte, error) { return []byte(sealed), nil }
