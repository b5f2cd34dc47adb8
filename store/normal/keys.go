package normal

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"navarch.io/navarch/store/object"
	"navarch.io/navarch/store/origin"
)

// KeySource is the location of the key set for a rule of a RequestAuthentication. It is comparable.
type KeySource struct {
	URI     string        // URI of the key set; empty: OIDC discovery of the issuer finds the URI
	Issuer  string        // issuer for OIDC discovery; empty if URI is set
	Timeout time.Duration // timeout of one request, as the rule states it; 0: not stated
}

// Separators in the text form of a KeySource.
const (
	issuerPrefix = "issuer "
	withinInfix  = " within "
)

// String returns the text form, which is also the name of the object with the keys: the URI, or "issuer " and the
// issuer. If a timeout is stated, " within " and the timeout follow.
func (s KeySource) String() string {
	out := cmp.Or(s.URI, issuerPrefix+s.Issuer)
	if s.Timeout != 0 {
		out += withinInfix + s.Timeout.String()
	}
	return out
}

// ParseKeySource returns the KeySource whose text form (KeySource.String) is the argument. It returns the zero
// KeySource and an error if the text after " within " is not a duration. URIs and issuers are not validated.
func ParseKeySource(name string) (s KeySource, err error) {
	where, within, timed := strings.Cut(name, withinInfix)
	if timed {
		if s.Timeout, err = time.ParseDuration(within); err != nil {
			return s, err
		}
	}
	if issuer, is := strings.CutPrefix(where, issuerPrefix); is {
		s.Issuer = issuer
	} else {
		s.URI = where
	}
	return s, nil
}

// KeysID returns the ID of the object with the keys of a source, for the rules of one namespace. Each namespace has
// objects of its own, because the number of sources of a namespace is bounded. Only the leader emits such objects
// (store/jwks).
func KeysID(namespace string, s KeySource) object.ID {
	return object.ID{Origin: origin.New("", origin.JWKS), Group: object.OwnGroup, Kind: "KeySet", Namespace: namespace, Name: s.String()}
}

// Keys is the result of requesting a key source.
type Keys struct {
	Set    string `json:"set,omitempty"`    // JSON Web Key Set; empty: not fetched yet
	Reason string `json:"reason,omitempty"` // reason why the last request failed; empty: it succeeded, or was not made yet
}

// NewKeys returns the object with the keys of a source. The parameters set and reason become the fields of Keys. The
// parameter id is a result of KeysID. The error is that of encoding JSON.
func NewKeys(id object.ID, set, reason string) (*object.Object, error) {
	raw, err := json.Marshal(Keys{set, reason})
	if err != nil {
		return nil, err
	}
	return &object.Object{ID: id, Version: "v1", JSON: raw, Location: "JWKS"}, nil
}

// ParseKeys returns the keys in an object that NewKeys made. The result is zero if the JSON cannot be decoded.
func ParseKeys(obj *object.Object) (k Keys) {
	if json.Unmarshal(obj.JSON, &k) != nil {
		return Keys{}
	}
	return k
}

// leastRSA is the minimum length of an RSA key, in bits.
const leastRSA = 1024

// usable returns the reason why Envoy would refuse a whole key set because of this key. It returns nil if Envoy accepts
// the key.
func usable(key jose.JSONWebKey) error {
	var algorithms []string
	switch of := key.Key.(type) {
	case *rsa.PublicKey:
		if algorithms = []string{"RS", "PS"}; of.N.BitLen() < leastRSA {
			return fmt.Errorf("%d bits are too few", of.N.BitLen())
		}
	case *ecdsa.PublicKey:
		algorithms = []string{"ES"}
	case ed25519.PublicKey:
		algorithms = []string{"EdDSA"}
	case []byte:
		algorithms = []string{"HS"}
	default:
		return fmt.Errorf("a key of type %T", key.Key)
	}
	if key.Algorithm != "" && !slices.ContainsFunc(algorithms, func(prefix string) bool { return strings.HasPrefix(key.Algorithm, prefix) }) {
		return fmt.Errorf("its algorithm is %.40q, want %s...", key.Algorithm, strings.Join(algorithms, "... or "))
	}
	return nil
}

// ParseKeySet parses a JSON Web Key Set (RFC 7517). compact is the set as JSON, without unusable keys, private parts of
// asymmetric keys, and certificates. Symmetric keys remain in compact with their secrets. private reports whether an
// asymmetric key in raw had a private part.
//
// ParseKeySet returns an error if raw is not a key set, if raw has no usable key, or if the result cannot be encoded.
func ParseKeySet(raw []byte) (compact []byte, private bool, err error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if json.Unmarshal(raw, &set) != nil || len(set.Keys) == 0 {
		return nil, false, errors.New(`is no JSON Web Key Set, or one without keys: want {"keys": [...]}`)
	}
	good := jose.JSONWebKeySet{}
	var wrong error
	for i, one := range set.Keys {
		var key jose.JSONWebKey
		if e := json.Unmarshal(one, &key); e != nil {
			wrong = fmt.Errorf("key %d: %w", i, e)
			continue
		}
		if _, symmetric := key.Key.([]byte); !symmetric && !key.IsPublic() {
			private, key = true, key.Public()
		}
		if e := usable(key); e != nil {
			wrong = fmt.Errorf("key %d: %w", i, e)
			continue
		}
		good.Keys = append(good.Keys, jose.JSONWebKey{Key: key.Key, KeyID: key.KeyID, Algorithm: key.Algorithm, Use: key.Use})
	}
	if len(good.Keys) == 0 {
		return nil, false, fmt.Errorf("has no key that can be used: %w", wrong)
	}
	compact, err = json.Marshal(good)
	return compact, private, err
}
