package model

import "fmt"

// PrivateKey is a private key in PEM, or the credentials of image registries (store/pullsecret), in memory only.
// Records do not contain it. It prints as [sealed].
type PrivateKey []byte

const sealed = "[sealed]"

// Format implements fmt.Formatter, for all verbs.
func (PrivateKey) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(sealed)) }

// String implements fmt.Stringer.
func (PrivateKey) String() string { return sealed }

// MarshalText implements encoding.TextMarshaler, and with it JSON.
func (PrivateKey) MarshalText() ([]byte, error) { return []byte(sealed), nil }
