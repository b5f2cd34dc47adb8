package seal_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"navarch.io/navarch/ca/seal"
	"navarch.io/navarch/ca/seal/kmstest"
)

var about = seal.Context{Mesh: "mesh", TrustDomain: "cluster.local", Epoch: 3, KeyID: "k3", Purpose: "signing-key"}

const plain = "the scalar of a private key"

func envelope(t *testing.T, p seal.Provider) *seal.Envelope {
	t.Helper()
	e, err := seal.New(p)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func file(t *testing.T, path string) *seal.File {
	t.Helper()
	f, err := seal.NewFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func passphrase(t *testing.T, words string) *seal.Passphrase {
	t.Helper()
	p, err := seal.NewPassphrase(seal.Secret(words))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func kms(t *testing.T, socket string) *seal.KMS {
	t.Helper()
	k, err := seal.NewKMS(seal.KMSConfig{Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	return k
}

// providers returns constructors of providers that share a key encryption key, as two processes do.
func providers(t *testing.T) map[string]func() seal.Provider {
	path, plugin := filepath.Join(t.TempDir(), "kek"), kmstest.Start(t)
	return map[string]func() seal.Provider{
		"file":       func() seal.Provider { return file(t, path) },
		"passphrase": func() seal.Provider { return passphrase(t, "correct horse battery") },
		"kms":        func() seal.Provider { return kms(t, plugin.Socket()) },
	}
}

func sealed(t *testing.T, s seal.Sealer) []byte {
	t.Helper()
	blob, err := s.Seal(t.Context(), seal.Secret(plain), about)
	if err != nil {
		t.Fatal(err)
	}
	return blob
}

func opens(t *testing.T, s seal.Sealer, blob []byte) {
	t.Helper()
	got, err := s.Open(t.Context(), blob, about)
	if err != nil || !bytes.Equal(got, []byte(plain)) {
		t.Fatalf("opened %d bytes, %v", len(got), err)
	}
}

// A value sealed by one process can be opened by another, under the same Context and no other.
func TestSealOpen(t *testing.T) {
	for name, provider := range providers(t) {
		t.Run(name, func(t *testing.T) {
			one, other := envelope(t, provider()), envelope(t, provider())
			blob := sealed(t, one)
			if bytes.Contains(blob, []byte(plain)) {
				t.Fatal("the blob holds what was sealed")
			}
			opens(t, one, blob)
			opens(t, other, blob)
			for field, change := range map[string]func(*seal.Context){
				"mesh":         func(c *seal.Context) { c.Mesh = "mesH" },
				"trust domain": func(c *seal.Context) { c.TrustDomain = "cluster.loca" },
				"epoch":        func(c *seal.Context) { c.Epoch-- },
				"key id":       func(c *seal.Context) { c.KeyID = "k2" },
				"purpose":      func(c *seal.Context) { c.Purpose = "gateway-tls" },
				"border":       func(c *seal.Context) { c.TrustDomain, c.Epoch = "cluster.loca", 3|'l'<<56 },
				"a border":     func(c *seal.Context) { c.Mesh, c.TrustDomain = "meshc", "luster.local" },
			} {
				moved := about
				change(&moved)
				if got, err := other.Open(t.Context(), blob, moved); !errors.Is(err, seal.ErrTampered) || got != nil {
					t.Errorf("another %s: %v, want ErrTampered", field, err)
				}
			}
		})
	}
}

// A value that Open would refuse is not sealed.
func TestSealIsBounded(t *testing.T) {
	s := envelope(t, passphrase(t, "correct horse battery"))
	if _, err := s.Seal(t.Context(), make(seal.Secret, 16<<20), about); err == nil || !strings.Contains(err.Error(), "at most 16777216") {
		t.Errorf("16 MiB: %v", err)
	}
}

// Each bit of a blob matters, and so does where it ends. One of a later format is called that.
func TestTampering(t *testing.T) {
	for name, provider := range providers(t) {
		t.Run(name, func(t *testing.T) {
			s := envelope(t, provider())
			blob := sealed(t, s)
			step := 1
			if name == "passphrase" {
				step = 7 // a changed salt costs a derivation
			}
			refused := map[bool]int{}
			for i := 0; i < len(blob); i += step {
				bad := bytes.Clone(blob)
				bad[i] ^= 1 << (i % 8)
				_, err := s.Open(t.Context(), bad, about)
				if i == len("NVSL") { // the format
					if !errors.Is(err, seal.ErrNewer) || errors.Is(err, seal.ErrTampered) || !strings.Contains(err.Error(), "format 17, this build reads 1") {
						t.Fatalf("another format: %v", err)
					}
					continue
				}
				if !errors.Is(err, seal.ErrTampered) && !errors.Is(err, seal.ErrUnavailable) {
					t.Fatalf("bit %d of byte %d changed: %v", i%8, i, err)
				}
				refused[errors.Is(err, seal.ErrTampered)]++
			}
			// Only bytes that name the provider, its key, or an annotation may look like another key.
			if refused[true] < refused[false] {
				t.Errorf("of %d changed bits %d were called unavailable", len(blob), refused[false])
			}
			for n := range len(blob) {
				if _, err := s.Open(t.Context(), blob[:n], about); !errors.Is(err, seal.ErrTampered) {
					t.Fatalf("cut to %d bytes: %v", n, err)
				}
			}
			if _, err := s.Open(t.Context(), append(bytes.Clone(blob), 0), about); !errors.Is(err, seal.ErrTampered) {
				t.Fatalf("a byte after the end: %v", err)
			}
			last := bytes.Clone(blob)
			last[len(last)-1] ^= 1
			if _, err := s.Open(t.Context(), last, about); !errors.Is(err, seal.ErrTampered) {
				t.Fatalf("last byte changed: %v", err)
			}
		})
	}
}

func TestWrongKeyIsSaid(t *testing.T) {
	dir := t.TempDir()
	blob := sealed(t, envelope(t, file(t, filepath.Join(dir, "a"))))
	_, err := envelope(t, file(t, filepath.Join(dir, "b"))).Open(t.Context(), blob, about)
	if !errors.Is(err, seal.ErrUnavailable) || !strings.Contains(err.Error(), "the file has") {
		t.Errorf("another key file: %v", err)
	}
	_, err = envelope(t, passphrase(t, "correct horse battery")).Open(t.Context(), blob, about)
	if !errors.Is(err, seal.ErrUnavailable) || !strings.Contains(err.Error(), `provider "file"`) {
		t.Errorf("another provider: %v", err)
	}
	blob = sealed(t, envelope(t, passphrase(t, "correct horse battery")))
	_, err = envelope(t, passphrase(t, "wrong horse battery")).Open(t.Context(), blob, about)
	if !errors.Is(err, seal.ErrUnavailable) || !strings.Contains(err.Error(), "another passphrase") {
		t.Errorf("another passphrase: %v", err)
	}
}

func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "kek")
	var racing sync.WaitGroup
	blobs := make([][]byte, 8)
	for i := range blobs {
		racing.Go(func() {
			f, err := seal.NewFile(path)
			if err != nil {
				t.Error(err)
				return
			}
			s, _ := seal.New(f)
			blobs[i], _ = s.Seal(t.Context(), seal.Secret(plain), about)
		})
	}
	racing.Wait()
	s := envelope(t, file(t, path))
	for _, blob := range blobs {
		opens(t, s, blob)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() != 32 {
		t.Fatalf("%v, %v", info, err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 1 {
		t.Errorf("files left: %v", left)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := seal.NewFile(path); err == nil || !strings.Contains(err.Error(), "mode 0644") {
		t.Errorf("a key that all may read: %v", err)
	}
	short := filepath.Join(t.TempDir(), "kek")
	if err := os.WriteFile(short, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := seal.NewFile(short); err == nil || !strings.Contains(err.Error(), "5 bytes, want 32") {
		t.Errorf("a short key: %v", err)
	}
}

// The plugin is called once a process and data key, not once a use; it may go away and come back.
func TestKMSCallsAndAbsence(t *testing.T) {
	plugin := kmstest.Start(t)
	provider := kms(t, plugin.Socket())
	if err := provider.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	one, other := envelope(t, provider), envelope(t, kms(t, plugin.Socket()))
	var blobs [][]byte
	for range 50 {
		blobs = append(blobs, sealed(t, one))
	}
	var opening sync.WaitGroup
	for _, blob := range blobs {
		opening.Go(func() {
			if _, err := other.Open(t.Context(), blob, about); err != nil {
				t.Error(err)
			}
		})
	}
	opening.Wait()
	for _, blob := range blobs {
		opens(t, one, blob)
	}
	if e, d := plugin.Encrypts.Load(), plugin.Decrypts.Load(); e != 1 || d != 1 {
		t.Errorf("%d encryptions and %d decryptions, want one of each", e, d)
	}

	plugin.Refuses.Store(true)
	_, err := envelope(t, provider).Seal(t.Context(), seal.Secret(plain), about)
	if !errors.Is(err, seal.ErrUnavailable) || errors.Is(err, seal.ErrTampered) {
		t.Errorf("seal while the plugin refuses: %v", err)
	}
	if err := provider.Check(t.Context()); !errors.Is(err, seal.ErrUnavailable) || errors.Is(err, seal.ErrTampered) {
		t.Errorf("check while the plugin refuses: %v", err)
	}
	plugin.Refuses.Store(false)

	plugin.Stop()
	opens(t, other, blobs[0]) // held
	fresh := envelope(t, provider)
	if _, err := fresh.Open(t.Context(), blobs[0], about); !errors.Is(err, seal.ErrUnavailable) {
		t.Errorf("open while the plugin is away: %v", err)
	}
	if _, err := fresh.Seal(t.Context(), seal.Secret(plain), about); !errors.Is(err, seal.ErrUnavailable) {
		t.Errorf("seal while the plugin is away: %v", err)
	}
	if err := provider.Check(t.Context()); !errors.Is(err, seal.ErrUnavailable) {
		t.Errorf("check while the plugin is away: %v", err)
	}
	plugin.Resume()
	plugin.RotateKey()
	for {
		_, err := fresh.Open(t.Context(), blobs[0], about)
		if err == nil {
			break
		}
		if !errors.Is(err, seal.ErrUnavailable) || t.Context().Err() != nil {
			t.Fatal(err)
		}
	}
	opens(t, envelope(t, provider), sealed(t, fresh)) // under the new key
}

// No way of printing shows a secret, or a value that contains one.
func TestNothingPrintsSecrets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kek")
	secret, f, p := seal.Secret(plain), file(t, path), passphrase(t, plain)
	e := envelope(t, f)
	opens(t, e, sealed(t, e))
	key, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, v := range []any{secret, &secret, struct{ S seal.Secret }{secret}, map[string]seal.Secret{"s": secret}, f, p, []any{p}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "% x"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out.Write(raw)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("x", slog.Any("v", v))
		slog.New(slog.NewTextHandler(&out, nil)).Info("x", slog.Any("v", v))
	}
	for _, raw := range []seal.Secret{secret, key} {
		for form, shown := range map[string]string{"raw": string(raw), "hex": fmt.Sprintf("%x", []byte(raw)), "HEX": fmt.Sprintf("%X", []byte(raw)),
			"decimals": strings.Trim(fmt.Sprint([]byte(raw)), "[]"), "spaced": fmt.Sprintf("% x", []byte(raw)), "base64": b64(raw)} {
			if strings.Contains(out.String(), shown) {
				t.Errorf("a secret was printed, %s", form)
			}
		}
	}
	if !strings.Contains(out.String(), "[sealed]") {
		t.Error("secrets do not print as [sealed]")
	}
}

func b64(raw []byte) string {
	out, _ := json.Marshal(raw)
	return strings.Trim(string(out), `"`)
}

func FuzzOpen(f *testing.F) {
	provider, err := seal.NewFile(filepath.Join(f.TempDir(), "kek"))
	if err != nil {
		f.Fatal(err)
	}
	s, err := seal.New(provider)
	if err != nil {
		f.Fatal(err)
	}
	blob, err := s.Seal(f.Context(), seal.Secret(plain), about)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(blob)
	f.Add(blob[:20])
	f.Add([]byte("NVSL\x01\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := s.Open(t.Context(), raw, about)
		if (err == nil) != bytes.Equal(raw, blob) || err == nil && string(got) != plain {
			t.Fatalf("opened %x: %v", raw, err)
		}
	})
}
