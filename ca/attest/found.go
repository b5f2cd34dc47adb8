package attest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"navarch.io/navarch/store/durable"
)

// The function KeysConfig.Ask fetches keys and the name of their issuer. The file KeysConfig.Memory keeps both for a
// process that starts while the source of the keys does not answer.

// maxIssuer bounds the name of an issuer, in bytes.
const maxIssuer = 1024

func checkIssuer(name string) error {
	if name == "" || len(name) > maxIssuer {
		return fmt.Errorf("the name of the issuer has %d bytes; 1 to %d are accepted", len(name), maxIssuer)
	}
	return nil
}

// maxMemory bounds the file KeysConfig.Memory, in bytes. The file has a key set in base64, its source, and the issuer's
// name.
const maxMemory = 2 * maxKeySet

// memory is the content of the file KeysConfig.Memory. The keys are valid only for the source Whose, because two
// clusters may have the same issuer name.
type memory struct {
	Whose  string `json:"whose"`
	Issuer string `json:"issuer"`
	Keys   []byte `json:"keys"` // JWKS
}

// Issuer returns the issuer's name that was fetched with the present keys by KeysConfig.Ask. Keys of KeysConfig.Before
// and Memory keep their issuer's name. The result is empty if there are no keys yet, or if the keys have no name of an
// issuer.
func (k *Keys) Issuer() string {
	if set := k.set.Load(); set != nil {
		return set.issuer
	}
	return ""
}

// learn returns nil if the issuer's name is known. If the name is unknown and patient is true, learn first waits for a
// fetch of the name, unless maxWaiting other callers already wait. Errors match ErrUnavailable.
func (k *Keys) learn(ctx context.Context, patient bool) error {
	if k.Issuer() != "" {
		return nil
	}
	if n := k.waiting.Add(1); n <= maxWaiting && patient {
		if f := k.start(false); f != nil {
			_ = wait(ctx, f) // the result of the fetch is checked below
		}
	}
	k.waiting.Add(-1)
	if k.Issuer() != "" {
		return nil
	}
	k.mu.Lock()
	failed := k.failed
	k.mu.Unlock()
	if failed != nil {
		// failed is not wrapped, because a timeout of the fetch is not the caller's timeout.
		return fmt.Errorf("%w: the issuer is not known yet: %v", ErrUnavailable, failed)
	}
	return fmt.Errorf("%w: the issuer of %s is not known yet", ErrUnavailable, k.source)
}

// remembered loads the keys from the file KeysConfig.Memory, if they were saved for the same source (Whose). The next
// fetch replaces them.
func (k *Keys) remembered() {
	if k.cfg.Memory == "" {
		return
	}
	text, err := durable.Read(k.cfg.Memory, maxMemory)
	if os.IsNotExist(err) {
		return
	}
	var m memory
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err == nil && m.Whose != k.cfg.Whose {
		err = fmt.Errorf("they are of %.200q", m.Whose)
	}
	if err == nil {
		err = checkIssuer(m.Issuer)
	}
	var set *keySet
	if err == nil {
		set, _, err = parseKeys(m.Keys)
	}
	if err != nil {
		k.cfg.Log.Warn("token keys saved by an earlier process are not used", "file", k.cfg.Memory, "source", k.source, "error", err)
		return
	}
	set.issuer = m.Issuer
	k.set.Store(set)
}

// EndSaving ends the use of KeysConfig.Memory. It waits for a write under way. Later fetches do not write the file.
func (k *Keys) EndSaving() {
	k.saving.Lock()
	defer k.saving.Unlock()
	k.unsaved = true
}

// remember saves an issuer's name and keys to the file KeysConfig.Memory, if they differ from the file's content.
func (k *Keys) remember(issuer string, keys []byte) {
	if k.cfg.Memory == "" {
		return
	}
	k.saving.Lock()
	defer k.saving.Unlock()
	if k.unsaved {
		return
	}
	text, err := json.Marshal(memory{Whose: k.cfg.Whose, Issuer: issuer, Keys: keys})
	if err == nil {
		if before, _ := durable.Read(k.cfg.Memory, maxMemory); bytes.Equal(before, text) {
			return
		}
		if err = os.MkdirAll(filepath.Dir(k.cfg.Memory), 0o700); err == nil {
			err = durable.Replace(k.cfg.Memory, 0o600, func(w io.Writer) error { _, err := w.Write(text); return err })
		}
	}
	if err != nil {
		k.cfg.Log.Warn("token keys not saved; a new process has no keys until the issuer answers",
			"file", k.cfg.Memory, "error", err)
	}
}
