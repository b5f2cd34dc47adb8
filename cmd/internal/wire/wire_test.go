package wire

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestFromEnv(t *testing.T) {
	newFlags := func(args ...string) (*pflag.FlagSet, *time.Duration) {
		fs := pflag.NewFlagSet("x", pflag.ContinueOnError)
		d := fs.Duration("max", time.Second, "")
		if err := fs.Parse(args); err != nil {
			t.Fatal(err)
		}
		return fs, d
	}
	env := func(v string) func(string) string { return func(string) string { return v } }
	for name, c := range map[string]struct {
		args  []string
		value string
		want  time.Duration
	}{
		"environment sets":         {nil, "5s", 5 * time.Second},
		"the command line wins":    {[]string{"--max=2s"}, "5s", 2 * time.Second},
		"empty leaves the default": {nil, "", time.Second},
	} {
		fs, d := newFlags(c.args...)
		if err := FromEnv(fs, env(c.value), map[string]string{"max": "PILOT_MAX"}); err != nil || *d != c.want {
			t.Errorf("%s: %v, %v", name, *d, err)
		}
	}
	fs, _ := newFlags()
	if err := FromEnv(fs, env("soon"), map[string]string{"max": "PILOT_MAX"}); err == nil || !strings.Contains(err.Error(), `PILOT_MAX="soon"`) {
		t.Errorf("bad value: %v", err)
	}
	if err := FromEnv(fs, env("1s"), map[string]string{"min": "PILOT_MIN"}); err == nil {
		t.Error("a variable for a flag that does not exist was taken")
	}
}

func TestLogger(t *testing.T) {
	var b bytes.Buffer
	log, err := Logger(&b, "warn", "json")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("quiet")
	log.Warn("loud")
	if got := b.String(); strings.Contains(got, "quiet") || !strings.Contains(got, `"msg":"loud"`) {
		t.Errorf("got %s", got)
	}
	for _, bad := range [][2]string{{"chatty", "text"}, {"info", "xml"}} {
		if _, err := Logger(&b, bad[0], bad[1]); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
	b.Reset()
	if log, err = Logger(&b, "default:error,ads:debug", "text"); err != nil {
		t.Fatal(err)
	}
	log.Warn("quiet")
	if _, err := Logger(&b, "ads:debug,xds:none", "text"); err != nil || strings.Count(b.String(), "\n") != 1 || !strings.Contains(b.String(), "scopes=ads,xds") {
		t.Errorf("%v: %s", err, b.String())
	}
}
