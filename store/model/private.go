package model

import "fmt"

// PrivateKey is a private key in PEM, or the credentials of image registries (store/pullsecret), in memory only: no record holds one, and it prints as
// [sealed] wherever it is printed.
type PrivateKey []byte

const sealed = "[sealed]"

// Format implements fmt.Formatter, for all verbs.
func (PrivateKey) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(sealed)) }

// String implements fmt.Stringer.
func (PrivateKey) String() string { return sealed }

// MarshalText implements encoding.TextMarshaler, and with it JSON.
func (PrivateKey) MarshalText() ([]byte, error) { return []byte(sealed), nil }
