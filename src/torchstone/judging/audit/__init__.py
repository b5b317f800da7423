"""Audit of cases: can a case tell a wrong kernel from a right one?"""
