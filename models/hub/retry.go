package hub

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// sleeper waits, or returns the context's error.
type sleeper func(ctx context.Context, d time.Duration) error

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// Pauses between tries double from the first to the last, less up to a half by
// chance, so that many clients do not return together.
const (
	firstPause = 500 * time.Millisecond
	lastPause  = 30 * time.Second
)

func pause(failures int) time.Duration {
	d := lastPause
	if failures < 8 {
		d = min(firstPause<<failures, lastPause)
	}
	return d/2 + rand.N(d/2+1)
}

// transientError marks an error that another try may cure.
type transientError struct{ error }

func (e transientError) Unwrap() error { return e.error }

// retriable says whether to try again, and how long the server asks to wait (-1 =
// not stated).
func retriable(err error) (bool, time.Duration) {
	var t transientError
	if errors.As(err, &t) {
		return true, -1
	}
	var s *statusError
	if errors.As(err, &s) {
		return s.transient(), s.wait
	}
	return false, -1
}

// again runs try until it succeeds, fails for good, or has failed Retries+1 times in a
// row without progress; try reports whether it made any. note is told of each pause.
func (c *Client) again(ctx context.Context, note func(string), try func() (progress bool, err error)) error {
	failures := 0
	for {
		progress, err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		ok, wait := retriable(err)
		if !ok {
			return err
		}
		if progress {
			failures = 0
		}
		if failures >= c.opt.Retries {
			return fmt.Errorf("%w after %d tries: %w", ErrUnavailable, failures+1, err)
		}
		if wait > c.opt.MaxWait {
			return fmt.Errorf("%w: the server asks to wait %s, more than %s: %w", ErrUnavailable, wait, c.opt.MaxWait, err)
		}
		if wait < 0 {
			wait = pause(failures)
		}
		failures++
		if note != nil {
			note(fmt.Sprintf("%v; trying again in %s", err, wait.Round(10*time.Millisecond)))
		}
		if err := c.sleep(ctx, wait); err != nil {
			return err
		}
	}
}
