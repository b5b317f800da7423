"""Audits cases: finds cases on which a trivially wrong kernel would agree, so that agreeing on them proves nothing."""
