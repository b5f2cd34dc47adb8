package jwt

import (
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math/big"
	"sync"
)

// nobodys is what the key that verifies nothing is derived from.
const nobodys = "navarch.io: nobody has the private key of this one"

// NoKeys is a key set that Envoy takes and that verifies no token. Its one key is a point of P-256 whose first coordinate is a hash of a sentence: to
// find its private key is to find a discrete logarithm. An empty key set is none to Envoy.
var NoKeys = sync.OnceValue(func() string {
	encode := func(n *big.Int) string { return base64.RawURLEncoding.EncodeToString(n.FillBytes(make([]byte, 32))) }
	for i := 0; ; i++ {
		hash := sha256.Sum256(fmt.Appendf(nil, "%s, %d", nobodys, i))
		x := new(big.Int).SetBytes(hash[:])
		if y := ordinate(x); y != nil {
			return fmt.Sprintf(`{"keys":[{"kty":"EC","crv":"P-256","alg":"ES256","kid":"no-keys","x":"%s","y":"%s"}]}`, encode(x), encode(y))
		}
	}
})

// ordinate solves y² = x³ - 3x + b of P-256; nil: there is no such point.
func ordinate(x *big.Int) *big.Int {
	curve := elliptic.P256().Params()
	if x.Cmp(curve.P) >= 0 {
		return nil
	}
	square := new(big.Int).Exp(x, big.NewInt(3), curve.P)
	square.Sub(square, new(big.Int).Mul(big.NewInt(3), x))
	square.Add(square, curve.B)
	square.Mod(square, curve.P)
	return new(big.Int).ModSqrt(square, curve.P)
}
