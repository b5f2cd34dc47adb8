package obs

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// More values than slots are counted together; a slot that was idle for long enough goes to a new value.
func TestSlots(t *testing.T) {
	now := time.Now()
	var freed []string
	s := Slots{Most: 2, Idle: time.Hour, Free: func(value string) { freed = append(freed, value) }}
	for i, one := range []struct {
		after time.Duration
		value string
		want  string
	}{
		{0, "a", "a"}, {0, "b", "b"}, {0, "c", OtherValues}, {time.Minute, "a", "a"}, {59 * time.Minute, "c", "c"},
		{0, "d", OtherValues}, {time.Minute, "d", "d"}, {0, "a", OtherValues}, {0, "c", "c"},
	} {
		now = now.Add(one.after)
		if got := s.Of(one.value, now); got != one.want {
			t.Errorf("step %d: %s counts as %s, want %s", i, one.value, got, one.want)
		}
	}
	if !slices.Equal(freed, []string{"b", "a"}) {
		t.Errorf("freed: %v", freed)
	}
	for i := range 1000 {
		s.Of(fmt.Sprint(i), now)
	}
	if len(s.used) > 2 {
		t.Errorf("%d slots", len(s.used))
	}
}
