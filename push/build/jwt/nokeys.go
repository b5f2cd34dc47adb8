package jwt

import (
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math/big"
	"sync"
)

// noKeysSeed is the text from which the key of NoKeys is derived.
const noKeysSeed = "navarch.io: nobody has the private key of this one"

// NoKeys returns a JWKS that verifies no token. Envoy would refuse an empty key set. The only key in the set is a point
// of P-256 whose x coordinate is a hash of a constant text, so its private key is unknown. The result is always the
// same, and is computed at the first call. Safe for concurrent use.
var NoKeys = sync.OnceValue(func() string {
	encode := func(n *big.Int) string { return base64.RawURLEncoding.EncodeToString(n.FillBytes(make([]byte, 32))) }
	for i := 0; ; i++ {
		hash := sha256.Sum256(fmt.Appendf(nil, "%s, %d", noKeysSeed, i))
		x := new(big.Int).SetBytes(hash[:])
		if y := ordinate(x); y != nil {
			return fmt.Sprintf(`{"keys":[{"kty":"EC","crv":"P-256","alg":"ES256","kid":"no-keys","x":"%s","y":"%s"}]}`,
				encode(x), encode(y))
		}
	}
})

// ordinate returns the y of a point of P-256 (y² = x³ - 3x + b), or nil if no point has this x.
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
