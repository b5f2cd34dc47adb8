package scrape

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

const failed = "error"

func urls(all []Target) string {
	var texts []string
	for _, t := range all {
		texts = append(texts, t.URL())
	}
	return strings.Join(texts, " ")
}

func TestParse(t *testing.T) {
	many := ""
	for port := range maxTargets + 1 {
		many += fmt.Sprintf("%d,", 9000+port)
	}
	for in, want := range map[string]string{
		"": "", " , ,": "",
		"9100:/metrics,9200:/m":          "http://localhost:9100/metrics http://localhost:9200/m",
		" 9100 , 9200:, 80:m?a=b:c ":     "http://localhost:9100/metrics http://localhost:9200/metrics http://localhost:80/m?a=b:c",
		"9100,9100:/metrics,9100:/other": "http://localhost:9100/metrics http://localhost:9100/other",
		":/metrics":                      failed, "9100,:/m": failed, "http:/m": failed, "0:/m": failed, "70000": failed, "-1": failed, "9100: /m": failed, "9100:/a\x00": failed, "9100:/%zz": failed, "9100://a/b": "http://localhost:9100//a/b",
		"15000": failed, "9100,15020:/metrics": failed, "015090:/m": failed, "15002": "http://localhost:15002/metrics",
		many: failed, strings.TrimSuffix(many, "9016,"): "16",
	} {
		got, err := Parse(in)
		if err == nil && want == failed || err != nil && want != failed || err == nil && urls(got) != want && fmt.Sprint(len(got)) != want {
			t.Errorf("%q: %v, %v, want %q", in, urls(got), err, want)
		}
	}
}

func TestRead(t *testing.T) {
	for in, want := range map[string]string{
		"": "", `{"scrape":"false","port":"x"}`: "", `{"scrape":"true"}`: "http://localhost:80/metrics",
		`{"scrape":"true","port":"9090","path":"m?x=1"}`: "http://localhost:9090/m?x=1", `{}`: "http://localhost:80/metrics",
		`{"port":"http"}`: failed, `{"port":"0"}`: failed, `{"port":"70000"}`: failed, `{"port":"15999"}`: failed, `{`: failed, `[]`: failed,
		`{"port":"15090","path":"/stats"}`: "http://localhost:15090/stats", // as before there were several targets
		`{"scrape":"true","port":"8080","path":"/a","targets":[{"port":"9100","path":""},{"port":"9200","path":"/m"}]}`: "http://localhost:9100/metrics http://localhost:9200/m",
		`{"scrape":"false","targets":[{"port":"9100"}]}`:                                                                "", `{"targets":[{"port":"15999"}]}`: failed, `{"targets":[{"port":"15000"}]}`: failed,
		`{"targets":[{"port":"x"}]}`: failed, `{"targets":[{"port":"0"}]}`: failed, `{"targets":[{"path":"/m"}]}`: failed, `{"targets":[{"port":"9100","path":"/ "}]}`: failed,
		`{"targets":[` + strings.Repeat(`{"port":"9100"},`, maxTargets) + `{"port":"9100"}]}`: failed,
	} {
		got, err := Read(in, 15999, 0)
		if err == nil && want == failed || err != nil && want != failed || err == nil && urls(got) != want {
			t.Errorf("%s: %v, %v, want %q", in, urls(got), err, want)
		}
	}
}

// The annotation has the same targets after it went through the variable, and when it is written again.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"9100:/metrics,9200:/m", " 9100 ,9100:", ":/m", "15020", "9100:/a?b=c,9100:/%2f", "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := Parse(text)
		if err != nil || len(all) == 0 {
			return
		}
		if again, err := Parse(Format(all)); err != nil || urls(again) != urls(all) {
			t.Errorf("%q: %v, written again %v, %v", text, all, again, err)
		}
		js, err := json.Marshal(Settings{Targets: all})
		if err != nil {
			t.Fatal(err)
		}
		if read, err := Read(string(js)); err != nil || urls(read) != urls(all) {
			t.Errorf("%q: %v, by the variable %v, %v", text, all, read, err)
		}
	})
}
