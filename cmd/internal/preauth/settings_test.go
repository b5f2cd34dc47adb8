package preauth

import (
	"testing"

	"golang.org/x/net/http2"
)

// Each connection receives its limits, with a credential or without one: 100 concurrent calls, and header lists of 32
// KiB (RFC 9113, section 6.5.2).
func TestSettings(t *testing.T) {
	c := start(t, Limits{}).http2("127.0.0.2")
	f, err := c.ReadFrame()
	if err != nil {
		t.Fatal(err)
	}
	settings, is := f.(*http2.SettingsFrame)
	if !is {
		t.Fatalf("the first frame is %v", f)
	}
	for id, want := range map[http2.SettingID]uint32{http2.SettingMaxConcurrentStreams: 100, http2.SettingMaxHeaderListSize: 32 << 10} {
		if got, has := settings.Value(id); got != want {
			t.Errorf("%v: %d (%v), want %d", id, got, has, want)
		}
	}
}
