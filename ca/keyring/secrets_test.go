package keyring_test

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"strings"

	"navarch.io/navarch/ca/seal"
)

// secrets opens every sealed key of the world with its KEK, and gives each in all forms in which it might be found.
func (w *world) secrets() map[string]string {
	w.t.Helper()
	var record struct {
		State struct {
			Epochs []struct {
				Number uint64
				Cert   []byte
			}
		}
	}
	out, sealer := map[string]string{}, w.sealer()
	for _, b := range w.blobs("keys/") {
		if b.Path == "keys/state" {
			w.decode(b.Raw, &record)
		}
	}
	for _, e := range record.State.Epochs {
		cert, err := x509.ParseCertificate(e.Cert)
		if err != nil {
			w.t.Fatal(err)
		}
		about := seal.Context{Mesh: "mesh", TrustDomain: td.Name(), Epoch: e.Number, KeyID: w.keyID(cert), Purpose: "signing-key"}
		for _, b := range w.blobs("keys/sealed/") {
			der, err := sealer.Open(w.t.Context(), b.Raw, about)
			if err != nil {
				continue // another epoch's
			}
			key, err := x509.ParsePKCS8PrivateKey(der)
			if err != nil {
				w.t.Fatal(err)
			}
			scalar, err := key.(*ecdsa.PrivateKey).Bytes()
			if err != nil {
				w.t.Fatal(err)
			}
			for kind, raw := range map[string][]byte{"DER": der, "scalar": scalar} {
				name := fmt.Sprintf("epoch %d %s ", e.Number, kind)
				out[name+"raw"] = string(raw)
				out[name+"hex"] = hex.EncodeToString(raw)
				out[name+"HEX"] = strings.ToUpper(hex.EncodeToString(raw))
				out[name+"base64"] = base64.StdEncoding.EncodeToString(raw)[:40]
				out[name+"base64url"] = base64.RawURLEncoding.EncodeToString(raw)[:40]
				out[name+"bytes"] = strings.Trim(fmt.Sprint(raw), "[]")
				out[name+"decimal"] = new(big.Int).SetBytes(raw).String()
			}
		}
	}
	return out
}

func (w *world) decode(raw []byte, into any) {
	w.t.Helper()
	if err := json.Unmarshal(raw, into); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) keyID(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:10])
}
