package keyring_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// needles has the texts to search for: by description, each form in which a key might be found.
type needles map[string][]byte

// key adds all forms of a private key.
func (n needles) key(t *testing.T, name string, key crypto.PrivateKey) {
	t.Helper()
	k, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		t.Fatalf("%s is a %T", name, key)
	}
	scalar, err := k.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	n.secret(name+" scalar", scalar)
	pkcs8, err1 := x509.MarshalPKCS8PrivateKey(k)
	sec1, err2 := x509.MarshalECPrivateKey(k)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	n.secret(name+" PKCS #8", pkcs8)
	n.secret(name+" SEC 1", sec1)
}

// secret adds bytes unchanged, reversed, and in the usual text encodings. Base64 depends on the position of the secret
// within a triple, so all three forms are added, without the ends that depend on neighbouring bytes.
func (n needles) secret(name string, raw []byte) {
	n[name+" raw"] = raw
	back := slices.Clone(raw)
	slices.Reverse(back)
	n[name+" backwards"] = back
	n[name+" hex"] = []byte(hex.EncodeToString(raw))
	n[name+" HEX"] = []byte(strings.ToUpper(hex.EncodeToString(raw)))
	n[name+" spaced hex"] = fmt.Appendf(nil, "% x", raw)
	n[name+" coloned hex"] = bytes.ReplaceAll(fmt.Appendf(nil, "% x", raw), []byte(" "), []byte(":"))
	n[name+" list"] = []byte(strings.Trim(fmt.Sprint(raw), "[]"))
	n[name+" JSON list"] = bytes.ReplaceAll([]byte(strings.Trim(fmt.Sprint(raw), "[]")), []byte(" "), []byte(","))
	n[name+" decimal"] = []byte(new(big.Int).SetBytes(raw).String())
	for shift := range 3 {
		shifted := append(make([]byte, shift), raw...)
		for kind, encoding := range map[string]*base64.Encoding{"base64": base64.RawStdEncoding, "base64url": base64.RawURLEncoding} {
			text := encoding.EncodeToString(shifted)
			n[fmt.Sprintf("%s %s %d", name, kind, shift)] = []byte(text[4 : len(text)-4])
		}
	}
}

// marks adds the texts with which any private key begins.
func (n needles) marks() {
	n["PEM"] = []byte("PRIVATE KEY")
	n["PKCS #8 on P-256"], _ = hex.DecodeString("308187020100301306072a8648ce3d020106082a8648ce3d030107046d306b0201010420")
	n["SEC 1 on P-256"], _ = hex.DecodeString("30770201010420")
	n["PKCS #8 on P-256, base64"] = []byte("MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg")
}

// in returns the names of the needles in a text. PEM and base64 break lines, and logs quote bytes, so the text is
// searched without line ends and quotes, too.
func (n needles) in(text []byte) []string {
	flat := bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("\r"), nil), []byte("\n"), nil)
	plain := unquote(text)
	var out []string
	for name, needle := range n {
		if bytes.Contains(text, needle) || bytes.Contains(flat, needle) || bytes.Contains(plain, needle) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// unquote reverts strconv.Quote anywhere in a text.
func unquote(text []byte) []byte {
	if !bytes.Contains(text, []byte(`\x`)) {
		return nil
	}
	var out []byte
	for rest := string(text); rest != ""; {
		r, wide, tail, err := strconv.UnquoteChar(rest, 0)
		switch {
		case err != nil: // not a quotation
			out, tail = append(out, rest[0]), rest[1:]
		case wide:
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, byte(r))
		}
		rest = tail
	}
	return out
}

// The scan below finds each needle, in every form.
func TestTheScanFinds(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	n := needles{}
	n.key(t, "key", key)
	n.marks()
	pkcs8, _ := x509.MarshalPKCS8PrivateKey(key)
	scalar, _ := key.Bytes()
	list, _ := json.Marshal(struct{ X []int }{ints(scalar)})
	for name, text := range map[string][]byte{
		"PEM": pem.EncodeToMemory(&pem.Block{Type: "X", Bytes: pkcs8}), "DER": append([]byte("before"), append(pkcs8, "after"...)...), "JSON": []byte(base64.StdEncoding.EncodeToString(append([]byte("x"), pkcs8...))),
		"log": fmt.Appendf(nil, "d=%x", scalar), "big": []byte(new(big.Int).SetBytes(scalar).String()), "quoted": fmt.Appendf(nil, "key=%q", pkcs8), "struct": fmt.Appendf(nil, "%v", scalar), "numbers": list,
	} {
		if len(n.in(text)) == 0 {
			t.Errorf("%s: nothing found", name)
		}
	}
	if found := n.in([]byte(strings.Repeat("nothing at all ", 100))); len(found) != 0 {
		t.Errorf("found %v", found)
	}
}

func ints(raw []byte) (out []int) {
	for _, b := range raw {
		out = append(out, int(b))
	}
	return out
}
