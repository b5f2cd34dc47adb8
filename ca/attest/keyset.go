package attest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"github.com/go-jose/go-jose/v4"
)

// keySet is one version of an issuer's public keys. Immutable.
type keySet struct {
	keys map[string][]publicKey // by key id; an issuer may use one id for several keys
	only string                 // id of the only key; "" if there are several keys
	// issuer is the issuer's name that was fetched with the keys. It is empty if the keys were fetched without a name.
	issuer string
}

type publicKey struct {
	key       crypto.PublicKey
	algorithm string            // algorithm of signatures; "" if the issuer does not state it
	print     [sha256.Size]byte // SHA-256 of the key in PKIX form
}

// find returns the keys with an id, or nil if no key has it. For an empty id it returns the only key, or nil if there
// are several.
func (s *keySet) find(id string) []publicKey {
	if s == nil {
		return nil
	}
	if id == "" {
		id = s.only
	}
	return s.keys[id]
}

func (s *keySet) holds(id string, print [sha256.Size]byte) bool {
	for _, k := range s.find(id) {
		if k.print == print {
			return true
		}
	}
	return false
}

// parseKeys parses a JWKS, or public keys as PEM (the content of kube-apiserver's --service-account-key-file). Keys
// that cannot verify a token are left out and described in skipped. A text without usable keys is an error, so that an
// empty or broken response never replaces good keys.
func parseKeys(text []byte) (set *keySet, skipped []string, err error) {
	set = &keySet{keys: make(map[string][]publicKey)}
	if strings.HasPrefix(strings.TrimSpace(string(text)), "-----BEGIN") {
		skipped, err = set.addPEM(text)
	} else {
		skipped, err = set.addJWKS(text)
	}
	if err != nil {
		return nil, nil, err
	}
	count := 0
	for id, keys := range set.keys {
		count += len(keys)
		set.only = id
	}
	switch {
	case count == 0 && len(skipped) == 0:
		return nil, nil, errors.New("key set is empty")
	case count == 0:
		return nil, nil, fmt.Errorf("key set has no usable key: %s", strings.Join(skipped, "; "))
	case count > 1:
		set.only = ""
	}
	return set, skipped, nil
}

func (s *keySet) addJWKS(text []byte) (skipped []string, err error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil {
		return nil, fmt.Errorf("key set is not a JWKS: %w", err)
	}
	for i, raw := range set.Keys {
		var k jose.JSONWebKey
		if err := json.Unmarshal(raw, &k); err != nil {
			skipped = append(skipped, fmt.Sprintf("key %d cannot be read", i))
			continue
		}
		if k.Use != "" && k.Use != "sig" {
			skipped = append(skipped, fmt.Sprintf("key %d (%.80q) is not for signatures", i, k.KeyID))
			continue
		}
		if err := s.add(k.KeyID, k.Algorithm, k.Key); err != nil {
			skipped = append(skipped, fmt.Sprintf("key %d (%.80q): %v", i, k.KeyID, err))
		}
	}
	return skipped, nil
}

func (s *keySet) addPEM(text []byte) (skipped []string, err error) {
	for n := 0; ; n++ {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return skipped, nil
		}
		var key any
		switch block.Type {
		case "PUBLIC KEY":
			key, err = x509.ParsePKIXPublicKey(block.Bytes)
		case "RSA PUBLIC KEY":
			key, err = x509.ParsePKCS1PublicKey(block.Bytes)
		case "CERTIFICATE":
			var c *x509.Certificate
			if c, err = x509.ParseCertificate(block.Bytes); err == nil {
				key = c.PublicKey
			}
		default:
			err = fmt.Errorf("PEM block %.40q is no public key", block.Type)
		}
		if err == nil {
			err = s.add("", "", key)
		}
		if err != nil {
			skipped = append(skipped, fmt.Sprintf("key %d: %v", n, err))
		}
	}
}

// add adds a public key: RSA of 2048 to 8192 bits, ECDSA except P-224, or Ed25519. An empty id is replaced by keyID.
// Errors: the key is of another kind, or cannot be encoded.
func (s *keySet) add(id, algorithm string, key any) error {
	switch k := key.(type) {
	case *rsa.PublicKey:
		if n := k.N.BitLen(); n < 2048 || n > 8192 {
			return fmt.Errorf("RSA of %d bits; 2048 to 8192 are accepted", n)
		}
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P224() {
			return errors.New("P-224 is not accepted")
		}
	case ed25519.PublicKey:
	default:
		return fmt.Errorf("%T is no public key for signatures", key)
	}
	derived, print, err := keyID(key)
	if err != nil {
		return err
	}
	if id == "" {
		id = derived
	}
	s.keys[id] = append(s.keys[id], publicKey{key, algorithm, print})
	return nil
}

// keyID returns the id that kube-apiserver gives a key: base64url of the SHA-256 of its PKIX form (kubernetes:
// pkg/serviceaccount/jwt.go, keyIDFromPublicKey).
func keyID(public crypto.PublicKey) (string, [sha256.Size]byte, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", [sha256.Size]byte{}, fmt.Errorf("encode public key: %w", err)
	}
	sum := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(sum[:]), sum, nil
}
