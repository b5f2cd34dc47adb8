package e2e

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// keysAtOnce is the number of client connections for the requests of a line of keys.
const keysAtOnce = 8

// firstSource ends the first of the addresses that connections come from, within the net of the mesh: no application
// has them.
const firstSource = 20

func keyOf(k int) string { return fmt.Sprint("user-", k) }

// hashed runs a line "keys HOST KEY N -> [WHO=COUNT]... [moved=COUNT]" once. It sends N keys, twice each, and one
// application must answer both requests of a key. KEY is header:NAME, query:NAME or cookie:NAME. With source:http or
// source:tcp the key is the source address of a separate connection, over HTTP or to the TCP port, whatever HOST is.
// WHO counts the keys that an application answers. moved, in later lines of the host, counts the keys with another
// application than in the first line, although the first application still answers some keys: these had no reason to
// move.
func (s *taskStage) hashed(fields, wanted []string) error {
	if len(fields) != 3 {
		return errors.New("no line of keys")
	}
	n, err := strconv.Atoi(fields[2])
	kind, name, is := strings.Cut(fields[1], ":")
	if err != nil || !is {
		return errors.New("no line of keys")
	}
	homes, err := s.homes(fields[0], kind, name, n)
	if err != nil {
		return err
	}
	answers := map[string]int{}
	for _, who := range homes {
		answers[who]++
	}
	first, again := s.first[fields[0]]
	moved := 0
	for key, was := range first {
		if homes[key] != was && answers[was] > 0 {
			moved++
		}
	}
	answers["moved"] = moved
	for _, share := range wanted {
		who, of, _ := strings.Cut(share, "=")
		if err := isCount(answers[who], of); err != nil {
			return fmt.Errorf("%v, want %s", answers, share)
		}
	}
	if !again {
		s.first[fields[0]] = homes
	}
	return nil
}

// homes returns the answering instance of each of n keys, by key. The error: two instances answered a key, or the
// status was not 200.
func (s *taskStage) homes(host, kind, name string, n int) (map[string]string, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: keysAtOnce}
	defer transport.CloseIdleConnections()
	client := http.Client{Timeout: patience, Transport: transport}
	ask := func(k int) (string, error) {
		key, client := keyOf(k), client
		if kind == "source" {
			from := net.Dialer{Timeout: patience, LocalAddr: &net.TCPAddr{IP: net.ParseIP(fmt.Sprintf("%s.%d", s.at, firstSource+k))}}
			if name == "tcp" {
				return answer(from.Dial("tcp", s.at+".1:9000"))
			}
			client.Transport = &http.Transport{DialContext: from.DialContext, DisableKeepAlives: true}
		}
		r, err := http.NewRequest("GET", "http://"+s.at+".1:8001/", nil)
		if err != nil {
			return "", err
		}
		switch r.Host = host; kind {
		case "header":
			r.Header.Set(name, key)
		case "cookie":
			r.AddCookie(&http.Cookie{Name: name, Value: key})
		case "query":
			r.URL.RawQuery = url.Values{name: {key}, "other": {"same"}}.Encode()
		}
		res, err := client.Do(r)
		if err != nil {
			return "", err
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body)
		if res.StatusCode != http.StatusOK {
			return "", fmt.Errorf("key %s: %s", key, res.Status)
		}
		return res.Header.Get("X-App"), nil
	}
	var mu sync.Mutex
	homes, faults := map[string]string{}, map[string]error{}
	var all sync.WaitGroup
	for i := range keysAtOnce {
		all.Go(func() {
			for k := i; k < n; k += keysAtOnce {
				key := keyOf(k)
				who, err := ask(k)
				other, err2 := ask(k)
				if err == nil && err2 == nil && who != other {
					err = fmt.Errorf("key %s: %s and then %s", key, who, other)
				}
				mu.Lock()
				homes[key] = who
				if err = errors.Join(err, err2); err != nil {
					faults[key] = err
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(faults) > 0 {
		key := slices.Min(slices.Collect(maps.Keys(faults)))
		return nil, fmt.Errorf("%d keys: %w", len(faults), faults[key])
	}
	return homes, nil
}
